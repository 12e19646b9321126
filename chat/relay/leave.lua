-- A web process no longer reads a run; after the last one the run's policy decides.
--
-- KEYS  1 run meta  2 runs of the web process  3 unread runs
-- ARGV  1 run id  2 field of the web process in meta  3 now (ms)
-- Returns {'read'} (others read on, or the run is over), {'lingers'}, or {'stop', worker id}: the stop flag is set.

redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[2])
local held = redis.call('HMGET', KEYS[1], 'state', 'linger_ms', 'stop', 'worker')
if not held[1] or held[1] == 'ended' then return {'read'} end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 4) == 'web:' then return {'read'} end
end
local linger_ms = tonumber(held[2]) or 0
if linger_ms > 0 then
  redis.call('ZADD', KEYS[3], tonumber(ARGV[3]) + linger_ms, ARGV[1])
  return {'lingers'}
end
if held[3] == '' then redis.call('HSET', KEYS[1], 'stop', 'disconnected') end
return {'stop', held[4] or ''}
