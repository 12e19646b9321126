-- Admit a request: check every limit, then charge all of them and create the run, atomically. A refusal charges
-- nothing. Needs meters.lua and budgets.lua before it.
--
-- KEYS  1 run meta  2 run request  3 workers of the model  4 live runs of the model  5 queued runs
--       6 runs of the web process  7 tasks of the model  8 resume context of the run  9 live runs of the tenant at the
--       model  10 tenants of the model  11 demand for the model  12 the run's public id, absent if it has none
-- ARGV  1 now (ms)  2 run id  3 packed request  4 packed scopes  5 packed costs  6 packed budgets  7 packed size
--       8 waiting runs allowed  9 lease (ms)  10 prefix of worker leases  11 life of the keys (ms)
--       12 task, '' = none  13 resume context, '' = none  14 tenant  15... pairs: further fields of meta
-- Returns {verdict, wait ms, six numbers of the tightest rates (rates_tightest), state, fraction, cap, scope, rate}
--       verdict: go, in_use (the public id), requests, tokens, concurrency, share, quota, held, beyond or unknown
--       (of a budget), full, memory (of this server), or unavailable. State and fraction are those of the best worker, with
--       the verdicts go and unavailable. Cap: the tokens that the budgets leave to each answer, -1 = no cap. Scope and
--       rate: numbers of what refuses; of a budget the first is its number.

local now = tonumber(ARGV[1])
local scopes, costs, budgets = cmsgpack.unpack(ARGV[4]), cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[6])
local levels = rates_read(scopes, now)

local function answer(verdict, wait, state, fraction, cap, scope, rate)
  local tightest = rates_tightest(scopes, levels)
  return {verdict, math.ceil(wait), tightest[1], tightest[2], tightest[3], tightest[4], tightest[5], tightest[6],
    state or '', fraction or '0', cap or -1, scope or 0, rate or 0}
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
for _, id in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  local worker = redis.call('HMGET', ARGV[10] .. id, 'state', 'fraction', 'seats')
  if not worker[1] then
    redis.call('SREM', KEYS[3], id)
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
if KEYS[12] and redis.call('EXISTS', KEYS[12]) == 1 then return answer('in_use', 0) end

redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now)
local places = num_seqs + tonumber(ARGV[8])
if redis.call('ZCARD', KEYS[4]) >= places then
  -- The queue is full only for tenants that have their equal share, so that no tenant can block the others.
  for _, key in ipairs({KEYS[9], KEYS[10]}) do redis.call('ZREMRANGEBYSCORE', key, '-inf', now) end
  local tenants = redis.call('ZCARD', KEYS[10])
  if not redis.call('ZSCORE', KEYS[10], ARGV[14]) then tenants = tenants + 1 end
  if redis.call('ZCARD', KEYS[9]) >= math.floor(places / tenants) then return answer('full', 1000) end
end

-- Of all that refuses, what does so for the longest time is named.
local refusal = rates_refusal(scopes, levels, costs)
-- Runs whose lease is over are looked for only where they would make the difference.
local function num_live(key, most)
  local count = redis.call('ZCARD', key)
  if count < most or redis.call('ZREMRANGEBYSCORE', key, '-inf', now) == 0 then return count end
  return redis.call('ZCARD', key)
end
local lives, places_of = {}, {}
for index, scope in ipairs(scopes) do
  if scope[3] > 0 then
    lives[index] = num_live(scope[2], scope[3])
    if lives[index] >= scope[3] and (not refusal or refusal[1] < 1000) then refusal = {1000, 'concurrency', index, 0} end
  end
  if scope[5] > 0 then
    local most = math.max(1, math.floor(places * scope[5] / 100))
    places_of[index] = num_live(scope[4], most)
    if places_of[index] >= most and not refusal then refusal = {1000, 'share', index, 0} end
  end
end
if refusal then
  local word = refusal[2] == 1 and 'requests' or type(refusal[2]) == 'string' and refusal[2] or 'tokens'
  return answer(word, refusal[1], '', '0', -1, refusal[3], refusal[4])
end
local broke, cap, reserved = nil, -1, nil
if #budgets > 0 then
  local levels_of_budgets
  broke, cap, reserved, levels_of_budgets = budgets_plan(budgets, cmsgpack.unpack(ARGV[7]))
  if broke then return answer(broke[1], 1000, '', '0', -1, broke[2], 0) end
  budgets_reserve(budgets, reserved, levels_of_budgets, ARGV[2], now)
end

rates_add(scopes, levels, costs)
local lease_end = now + tonumber(ARGV[9])
local function add_live(key, count)
  redis.call('ZADD', key, lease_end, ARGV[2])
  -- Not with each run of a busy set, which lives for a day.
  if count == 0 or now % 16 == 0 then redis.call('PEXPIRE', key, 86400000) end
end
for index, scope in ipairs(scopes) do
  if scope[3] > 0 then add_live(scope[2], lives[index]) end
  if scope[5] > 0 then add_live(scope[4], places_of[index]) end
end
redis.call('ZADD', KEYS[4], lease_end, ARGV[2])
redis.call('ZADD', KEYS[9], lease_end, ARGV[2])
redis.call('ZADD', KEYS[10], lease_end, ARGV[14])
for _, key in ipairs({KEYS[9], KEYS[10]}) do redis.call('PEXPIRE', key, 86400000) end
redis.call('SADD', KEYS[6], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'queued', 'attempt', 1, 'worker', '', 'stop', '', 'scopes', ARGV[4],
  'costs', ARGV[5], 'budgets', ARGV[6], 'cap', cap, 'has_task', ARGV[12] ~= '' and 1 or 0, unpack(ARGV, 15))
redis.call('PEXPIRE', KEYS[1], ARGV[11])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[11])
if ARGV[13] ~= '' then redis.call('SET', KEYS[8], ARGV[13], 'PX', ARGV[11]) end
if KEYS[12] then redis.call('SET', KEYS[12], ARGV[2], 'PX', ARGV[11]) end
-- A run without a task is here too: if its web process does not end it, the reaper does.
redis.call('ZADD', KEYS[5], now, ARGV[2])
if ARGV[12] ~= '' then
  redis.call('LPUSH', KEYS[7], ARGV[12])
  if best[1] == 'unloaded' and redis.call('EXISTS', KEYS[11]) == 0 then redis.call('LPUSH', KEYS[11], '1') end
end
return answer('go', 0, best[1], best[2], cap)
