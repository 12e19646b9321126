-- Take a run over from a worker whose lease is gone: start the next attempt, write its `begin` to the log, queue the
-- run again.
-- From then on the log refuses every entry of the old attempt, because entry ids must grow.
--
-- KEYS  1 run meta  2 run log  3 lease of the worker  4 runs of the worker  5 queued runs
-- ARGV  1 run id  2 worker id  3 now (ms)
-- Returns {'alive'}, {'over'}, or {'queued', attempt, packed request's model slug}.

if redis.call('EXISTS', KEYS[3]) == 1 then return {'alive'} end
redis.call('SREM', KEYS[4], ARGV[1])
local held = redis.call('HMGET', KEYS[1], 'state', 'worker', 'attempt', 'slug')
if held[1] ~= 'running' or held[2] ~= ARGV[2] then return {'over'} end
local attempt, position = tonumber(held[3]) + 1, 0
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1]
if last then position = tonumber(string.match(last[1], '-(%d+)$')) + 1 end
redis.call('XADD', KEYS[2], attempt .. '-' .. position, 'b', '1')
redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
redis.call('HSET', KEYS[1], 'state', 'queued', 'attempt', attempt, 'worker', '')
redis.call('ZADD', KEYS[5], ARGV[3], ARGV[1])
return {'queued', attempt, held[4]}
