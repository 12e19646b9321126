-- Add a web process to the readers of an existing run. A detached run has a reader again.
--
-- KEYS  1 run meta  2 runs of the web process  3 unread runs
-- ARGV  1 run id  2 field of the web process in meta  3 its channel
-- Returns {'gone'}, or {state, about, detach grace (ms)}. An ended run has only its log left, so no reader is recorded.

local held = redis.call('HMGET', KEYS[1], 'state', 'about', 'linger_ms')
if not held[1] then return {'gone'} end
if held[1] ~= 'ended' then
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return held
