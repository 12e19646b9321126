-- Admit a request: check every limit, then charge all of them and create the run, atomically. A refusal charges
-- nothing.
--
-- KEYS  1 run meta  2 run request  3 bucket of requests  4 bucket of tokens  5 caller's live runs
--       6 workers of the model  7 live runs of the model  8 queued runs  9 runs of the web process  10 tasks of the model
--       11 resume context of the run  12 live runs of the tenant at the model  13 tenants of the model
--       14 demand for the model  15 the run's public id, absent if it has none
-- ARGV  1 now (ms)  2 run id  3 packed request  4 requests/min, 0 = none  5 tokens/min, 0 = none  6 tokens reserved
--       7 live runs allowed  8 waiting runs allowed  9 lease (ms)  10 prefix of worker leases  11 life of the keys (ms)
--       12 task, '' = none  13 resume context, '' = none  14 tenant  15... pairs: further fields of meta
-- Returns {verdict, wait ms, requests left, ms until full, tokens left, ms until full, state, fraction}
--       verdict: go, in_use (the public id), requests, tokens, concurrency, full, memory (of this server), or
--       unavailable. State and fraction are those of the best worker, with the verdicts go and unavailable.

local now = tonumber(ARGV[1])

local requests_limit, tokens_limit, cost = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local requests, tokens = bucket_level(KEYS[3], requests_limit, now), bucket_level(KEYS[4], tokens_limit, now)

local function answer(verdict, wait, ...)
  return {verdict, math.ceil(wait),
    math.floor(requests or 0), bucket_wait_ms(requests, requests_limit, requests_limit),
    math.floor(tokens or 0), bucket_wait_ms(tokens, tokens_limit, tokens_limit), ...}
end

-- Reserve a fifth of the server's memory for the logs of live runs. A server that does not report its memory has no
-- limit.
local info = redis.pcall('INFO', 'memory')
if type(info) == 'string' then
  local most, used = tonumber(string.match(info, 'maxmemory:(%d+)')) or 0, tonumber(string.match(info, 'used_memory:(%d+)')) or 0
  if most > 0 and used > 0.8 * most then return answer('memory', 1000) end
end

-- Sum the sequences that ready workers can run at once, else take those of one that loads the model or can load it: the
-- run waits for it. Remove workers whose lease has lapsed.
local rank = {loading = 4, unloaded = 3, draining = 2, failed = 1}
local num_seqs, best = 0, {'none', '0', '0'}
for _, id in ipairs(redis.call('SMEMBERS', KEYS[6])) do
  local worker = redis.call('HMGET', ARGV[10] .. id, 'state', 'fraction', 'seats')
  if not worker[1] then
    redis.call('SREM', KEYS[6], id)
  elseif worker[1] == 'ready' then
    num_seqs = num_seqs + (tonumber(worker[3]) or 1)
  elseif (rank[worker[1]] or 0) > (rank[best[1]] or 0) then
    best = {worker[1], worker[2] or '0', worker[3] or '1'}
  end
end
if num_seqs > 0 then
  best = {'ready', '1'}
elseif best[1] == 'loading' or best[1] == 'unloaded' then
  num_seqs = tonumber(best[3])
else
  return answer('unavailable', 0, best[1], best[2])
end
if KEYS[15] and redis.call('EXISTS', KEYS[15]) == 1 then return answer('in_use', 0) end

redis.call('ZREMRANGEBYSCORE', KEYS[7], '-inf', now)
local places = num_seqs + tonumber(ARGV[8])
if redis.call('ZCARD', KEYS[7]) >= places then
  -- The queue is full only for tenants that have their equal share, so that no tenant can block the others.
  for _, key in ipairs({KEYS[12], KEYS[13]}) do redis.call('ZREMRANGEBYSCORE', key, '-inf', now) end
  local tenants = redis.call('ZCARD', KEYS[13])
  if not redis.call('ZSCORE', KEYS[13], ARGV[14]) then tenants = tenants + 1 end
  if redis.call('ZCARD', KEYS[12]) >= math.floor(places / tenants) then return answer('full', 1000) end
end

redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
if redis.call('ZCARD', KEYS[5]) >= tonumber(ARGV[7]) then return answer('concurrency', 1000) end

if requests and requests < 1 then return answer('requests', bucket_wait_ms(requests, requests_limit, 1)) end
-- A request of more tokens than a whole minute's passes if the bucket is full; the level then goes below zero.
local wanted = math.min(cost, tokens_limit)
if tokens and tokens < wanted then return answer('tokens', bucket_wait_ms(tokens, tokens_limit, wanted)) end

if requests then requests = requests - 1; bucket_store(KEYS[3], requests, requests_limit, now) end
if tokens then tokens = tokens - cost; bucket_store(KEYS[4], tokens, tokens_limit, now) end
local lease_end = now + tonumber(ARGV[9])
redis.call('ZADD', KEYS[5], lease_end, ARGV[2])
redis.call('PEXPIRE', KEYS[5], 86400000)
redis.call('ZADD', KEYS[7], lease_end, ARGV[2])
redis.call('ZADD', KEYS[12], lease_end, ARGV[2])
redis.call('ZADD', KEYS[13], lease_end, ARGV[14])
for _, key in ipairs({KEYS[12], KEYS[13]}) do redis.call('PEXPIRE', key, 86400000) end
redis.call('SADD', KEYS[9], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'queued', 'attempt', 1, 'worker', '', 'stop', '', unpack(ARGV, 15))
redis.call('PEXPIRE', KEYS[1], ARGV[11])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[11])
if ARGV[13] ~= '' then redis.call('SET', KEYS[11], ARGV[13], 'PX', ARGV[11]) end
if KEYS[15] then redis.call('SET', KEYS[15], ARGV[2], 'PX', ARGV[11]) end
if ARGV[12] ~= '' then
  redis.call('ZADD', KEYS[8], now, ARGV[2])
  redis.call('LPUSH', KEYS[10], ARGV[12])
  if best[1] == 'unloaded' and redis.call('EXISTS', KEYS[14]) == 0 then redis.call('LPUSH', KEYS[14], '1') end
end
return answer('go', 0, best[1], best[2])
