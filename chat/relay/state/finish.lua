-- End a run: write its last events and its terminal record, and settle limits and budgets, atomically.
-- The request is deleted at once, as nothing reads it after the end; log, meta and resume context expire later.
-- Needs meters.lua and budgets.lua before it.
--
-- KEYS  1 run meta  2 run log  3 run request  4 usage  5 live runs of the model
--       6 queued runs  7 runs of the worker  8 unread runs  9 resume context
-- ARGV  1 run id  2 attempt  3 entry id  4 packed events, '' = none  5 packed record, '' = none
--       6 prompt tokens used  7 cached ones of them  8 completion tokens used
--       9 those of reasoning of them  10 life of log and meta from now (ms), unless the run has a longer one of its own
--       11 now (ms)  12 packed texts, '' = none  13 unread records from which on texts are left out
-- Returns 'ended', 'again' (it was ended before by this attempt), or 'stale' (another attempt owns the run).

local function words(text)
  local found = {}
  for word in string.gmatch(text, '%S+') do found[#found + 1] = word end
  return found
end

local held = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'log_life_ms', 'public', 'told', 'lives', 'meters',
  'limits', 'costs', 'budgets', 'prices')
if held[1] then
  if held[2] ~= ARGV[2] then return 'stale' end
  if held[1] == 'ended' then return 'again' end
  if ARGV[4] ~= '' then
    local added = redis.pcall('XADD', KEYS[2], ARGV[3], 'e', ARGV[4])
    if type(added) == 'table' and added.err then
      if string.find(added.err, 'equal or smaller', 1, true) then return 'stale' end
      return added -- the server is out of memory; the worker retries
    end
  end
  redis.call('HSET', KEYS[1], 'state', 'ended')
  local life = math.max(tonumber(ARGV[10]), tonumber(held[3]) or 0)
  redis.call('DEL', KEYS[3])
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[9]}) do redis.call('PEXPIRE', key, life) end
  if held[4] and held[4] ~= '' then redis.call('PEXPIRE', held[4], life) end
  -- What was reserved is replaced by what was used; a request stays one. A run of an older
  -- version has neither limits nor prices here.
  local prompt, completion = tonumber(ARGV[6]), tonumber(ARGV[8])
  if held[8] then
    local _, input, output, tokens = struct.unpack(COSTS, held[9])
    local now, less = tonumber(ARGV[11]), costs_by_slot(0, prompt - input, completion - output, prompt + completion - tokens)
    local names = words(held[7])
    local scopes = meters_read(redis.call('MGET', unpack(names)), held[8], now, true)
    meters_add(scopes, less)
    meters_store(scopes, names, 0, now)
  end
  if held[11] then
    budgets_settle(words(held[10]), held[11], ARGV[1], prompt, tonumber(ARGV[7]), completion, tonumber(ARGV[9]))
  end
end
-- Write the record even if Valkey has lost the run: its usage must be counted, and SQL ignores a repeated run id.
if ARGV[5] ~= '' then
  local entry = {'r', ARGV[5], 't', held[5] or ''}
  if ARGV[12] ~= '' then
    local is_behind = redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[13])
    entry[5], entry[6] = 'b', is_behind and '' or ARGV[12]
  end
  redis.call('XADD', KEYS[4], '*', unpack(entry))
end
for _, name in ipairs(words(held[6] or '')) do redis.call('ZREM', name, ARGV[1]) end
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
redis.call('SREM', KEYS[7], ARGV[1])
redis.call('ZREM', KEYS[8], ARGV[1])
return 'ended'
