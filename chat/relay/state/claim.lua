-- Claim a run for a worker. Exactly one worker per attempt succeeds. It may repeat the claim if the reply was lost;
-- others get 'taken'.
--
-- KEYS  1 run meta  2 run request  3 queued runs  4 runs of the worker  5 lease of the worker
-- ARGV  1 run id  2 attempt  3 worker id
-- Returns {'claimed', packed request, meta fields and values...}, or {'taken'}, or {'lapsed'}: the worker's lease is gone.

if redis.call('EXISTS', KEYS[5]) == 0 then return {'lapsed'} end
local held = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'worker')
local is_own = held[1] == 'running' and held[3] == ARGV[3]
if held[2] ~= ARGV[2] or not (held[1] == 'queued' or is_own) then return {'taken'} end
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[3])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('SADD', KEYS[4], ARGV[1])
return {'claimed', redis.call('GET', KEYS[2]), unpack(redis.call('HGETALL', KEYS[1]))}
