-- Remove a web process from the readers of a run. After the last reader, the detach policy of the run applies.
--
-- KEYS  1 run meta  2 runs of the web process  3 unread runs  4 usage
-- ARGV  1 run id  2 field of the web process in meta  3 now (ms)  4 how the web process ended the client's answer (an outcome), '' = it did not
-- If it did, the record of the run gets that outcome, unless the run outlives its readers and its client may attach
-- again.
-- Returns {'read'} (others read on, or the run is over), {'lingers'}, or {'stop', worker id}: the stop flag is set.

redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[2])
local held = redis.call('HMGET', KEYS[1], 'state', 'linger_ms', 'stop', 'worker')
if not held[1] then return {'read'} end
local linger_ms = tonumber(held[2]) or 0
local is_announced = ARGV[4] ~= '' and linger_ms == 0
if held[1] == 'ended' then
  if is_announced then redis.call('XADD', KEYS[4], '*', 'id', ARGV[1], 't', ARGV[4]) end
  return {'read'}
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 4) == 'web:' then return {'read'} end
end
if linger_ms > 0 then
  redis.call('ZADD', KEYS[3], tonumber(ARGV[3]) + linger_ms, ARGV[1])
  return {'lingers'}
end
if is_announced then redis.call('HSET', KEYS[1], 'told', ARGV[4]) end
if (held[3] or '') == '' then redis.call('HSET', KEYS[1], 'stop', is_announced and ARGV[4] or 'disconnected') end
return {'stop', held[4] or ''}
