-- Admit a request: check every limit, then charge all of them and create the run, atomically. A refusal charges
-- nothing. Needs meters.lua and budgets.lua before it.
--
-- KEYS  1 run meta  2 run request  3 workers of the model  4 live runs of the model  5 queued runs
--       6 runs of the web process  7 tasks of the model  8 resume context of the run  9 tenants of the model
--       10 demand for the model  11 the run's public id, '' = none  12 memory is enough
--       then the meters of the scopes, then the sets in which the run is live: live runs of the tenant at the model, then
--       of each scope its live runs if it limits them, and those at the model if it has a share of the queue; then the
--       windows of the budgets
-- ARGV  1 now (ms)  2 run id  3 packed request  4 packed limits of the scopes  5 packed costs  6 packed budgets
--       7 packed size  8 waiting runs allowed  9 lease (ms)  10 prefix of worker leases  11 life of the keys (ms)
--       12 task, '' = none  13 resume context, '' = none  14 tenant  15... pairs: further fields of meta
-- Returns {verdict, wait ms, six numbers of the tightest rates (meters_add), state, fraction, cap, scope, slot}
--       verdict: go, in_use (the public id), requests, tokens, concurrency, share, quota, held, beyond or unknown
--       (of a budget), full, memory (of this server), or unavailable. State and fraction are those of the best worker, with
--       the verdicts go and unavailable. Cap: the tokens that the budgets leave to each answer, -1 = no cap. Scope and
--       slot: what refuses, by number; of a budget the scope is its number.

local now, num_scopes = tonumber(ARGV[1]), #ARGV[4] / 64
local before_meters, tenant = 12, 13 + num_scopes
local records = num_scopes > 0 and redis.call('MGET', unpack(KEYS, before_meters + 1, tenant - 1)) or {}
local scopes = meters_read(records, ARGV[4], now)

local function answer(verdict, wait, costs, state, fraction, cap, scope, slot)
  local tightest = meters_add(scopes, costs)
  return {verdict, math.ceil(wait), tightest[1], tightest[2], tightest[3], tightest[4], tightest[5], tightest[6],
    state, fraction, cap, scope, slot}
end

local function refuse(verdict, wait, scope, slot, state, fraction)
  return answer(verdict, wait, costs_by_slot(0, 0, 0, 0), state or '', fraction or '0', -1, scope or 0, slot or 0)
end

-- Reserve a fifth of the server's memory for the logs of live runs. A server that does not report its memory has no
-- limit. That there is enough is known for a moment, for requests that are too small to change it meanwhile.
local is_small = #ARGV[3] + #ARGV[13] < 65536
if not is_small or not redis.call('GET', KEYS[12]) then
  local info = redis.pcall('INFO', 'memory')
  if type(info) == 'string' then
    local most, used = tonumber(string.match(info, 'maxmemory:(%d+)')) or 0, tonumber(string.match(info, 'used_memory:(%d+)')) or 0
    if most > 0 and used > 0.8 * most then return refuse('memory', 1000) end
  end
  redis.call('SET', KEYS[12], '1', 'PX', 20)
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
  return refuse('unavailable', 0, 0, 0, best[1], best[2])
end
if KEYS[11] ~= '' and redis.call('EXISTS', KEYS[11]) == 1 then return refuse('in_use', 0) end

-- Runs whose lease is over are looked for only where they would make the difference.
local function num_live(key, most)
  local count = redis.call('ZCARD', key)
  if count < most or redis.call('ZREMRANGEBYSCORE', key, '-inf', now) == 0 then return count end
  return redis.call('ZCARD', key)
end

local places = num_seqs + tonumber(ARGV[8])
if num_live(KEYS[4], places) >= places then
  -- The queue is full only for tenants that have their equal share, so that no tenant can block the others.
  for _, key in ipairs({KEYS[tenant], KEYS[9]}) do redis.call('ZREMRANGEBYSCORE', key, '-inf', now) end
  local tenants = redis.call('ZCARD', KEYS[9])
  if not redis.call('ZSCORE', KEYS[9], ARGV[14]) then tenants = tenants + 1 end
  if redis.call('ZCARD', KEYS[tenant]) >= math.floor(places / tenants) then return refuse('full', 1000) end
end

-- Of all that refuses, what does so for the longest time is named.
local costs = costs_by_slot(struct.unpack(COSTS, ARGV[5]))
local refusal = meters_refusal(scopes, costs)
local counts = {}
local function is_taken(most)
  local number = #counts + 1
  counts[number] = num_live(KEYS[tenant + number], most)
  return counts[number] >= most
end
for index = 1, num_scopes do
  local most, percent = scopes[index][1][7], scopes[index][1][8]
  if most > 0 and is_taken(most) and (not refusal or refusal[1] < 1000) then refusal = {1000, 'concurrency', index} end
  if percent > 0 and is_taken(math.max(1, math.floor(places * percent / 100))) and not refusal then
    refusal = {1000, 'share', index}
  end
end
if refusal then
  local slot = refusal[2]
  if type(slot) == 'string' then return refuse(slot, refusal[1], refusal[3]) end
  return refuse(costs_by_slot('requests', 'tokens', 'tokens', 'tokens')[slot], refusal[1], refusal[3], slot)
end
local cap, before_budgets = -1, tenant + #counts
if ARGV[6] ~= '' then
  local broke, most, reserved, held = budgets_plan(KEYS, before_budgets, ARGV[6], {struct.unpack('<ddddd', ARGV[7])})
  if broke then return refuse(broke[1], 1000, broke[2]) end
  cap = most
  budgets_reserve(KEYS, before_budgets, reserved, held, ARGV[2])
end

local result = answer('go', 0, costs, best[1], best[2], cap, 0, 0)
meters_store(scopes, KEYS, before_meters, now)
local lease_end = string.format('%d', now + tonumber(ARGV[9]))
local function add_live(key, count)
  redis.call('ZADD', key, lease_end, ARGV[2])
  -- Not with each run of a busy set, which lives for a day.
  if count == 0 or now % 16 == 0 then redis.call('PEXPIRE', key, '86400000') end
end
add_live(KEYS[tenant], redis.call('ZCARD', KEYS[tenant]))
for number, count in ipairs(counts) do add_live(KEYS[tenant + number], count) end
redis.call('ZADD', KEYS[4], lease_end, ARGV[2])
if redis.call('ZADD', KEYS[9], lease_end, ARGV[14]) == 1 or now % 16 == 0 then
  redis.call('PEXPIRE', KEYS[9], '86400000')
end
redis.call('SADD', KEYS[6], ARGV[2])
-- What is empty or zero has no field.
local fields = {'state', 'queued', 'attempt', '1', 'lives', table.concat(KEYS, ' ', tenant, before_budgets), unpack(ARGV, 15)}
local function add_field(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
if num_scopes > 0 then
  add_field('meters', table.concat(KEYS, ' ', before_meters + 1, tenant - 1))
  add_field('limits', ARGV[4])
  add_field('costs', ARGV[5])
end
if ARGV[6] ~= '' then
  add_field('budgets', table.concat(KEYS, ' ', before_budgets + 1))
  add_field('prices', ARGV[6])
end
if cap >= 0 then add_field('cap', string.format('%d', cap)) end
if ARGV[12] == '' then add_field('has_task', '0') end
if KEYS[11] ~= '' then add_field('public', KEYS[11]) end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[11])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[11])
if ARGV[13] ~= '' then redis.call('SET', KEYS[8], ARGV[13], 'PX', ARGV[11]) end
if KEYS[11] ~= '' then redis.call('SET', KEYS[11], ARGV[2], 'PX', ARGV[11]) end
-- A run without a task is here too: if its web process does not end it, the reaper does.
redis.call('ZADD', KEYS[5], ARGV[1], ARGV[2])
if ARGV[12] ~= '' then
  redis.call('LPUSH', KEYS[7], ARGV[12])
  if best[1] == 'unloaded' and redis.call('EXISTS', KEYS[10]) == 0 then redis.call('LPUSH', KEYS[10], '1') end
end
return result
