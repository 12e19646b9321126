-- Set the stop flag of a run. Its worker sees the flag when it claims the run, or within a second; a command tells it
-- sooner.
--
-- KEYS  1 run meta  2 unread runs
-- ARGV  1 run id  2 outcome
-- Returns {'stop', worker id}, or {'over'}.

redis.call('ZREM', KEYS[2], ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'state', 'stop', 'worker')
if not held[1] or held[1] == 'ended' then return {'over'} end
if (held[2] or '') == '' then redis.call('HSET', KEYS[1], 'stop', ARGV[2]) end
return {'stop', held[3] or ''}
