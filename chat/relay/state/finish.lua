-- End a run: write its last events and its terminal record, and settle concurrency and tokens, atomically.
-- The request is deleted at once, as nothing reads it after the end; log, meta and resume context expire later.
--
-- KEYS  1 run meta  2 run log  3 run request  4 usage  5 caller's live runs  6 live runs of the model  7 bucket of tokens
--       8 queued runs  9 runs of the worker  10 unread runs  11 resume context
-- ARGV  1 run id  2 attempt  3 entry id  4 packed events, '' = none  5 packed record, '' = none  6 tokens used  7 tokens/min, 0 = none
--       8 life of log and meta from now (ms), unless the run has a longer one of its own  9 now (ms)
--       10 packed texts, '' = none  11 unread records from which on texts are left out
-- Returns 'ended', 'again' (it was ended before by this attempt), or 'stale' (another attempt owns the run).

local held = redis.call('HMGET', KEYS[1], 'state', 'attempt', 'reserved', 'log_life_ms', 'public', 'told', 'tenant_live')
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
  local life = math.max(tonumber(ARGV[8]), tonumber(held[4]) or 0)
  redis.call('DEL', KEYS[3])
  for _, key in ipairs({KEYS[1], KEYS[2], KEYS[11]}) do redis.call('PEXPIRE', key, life) end
  if held[5] and held[5] ~= '' then redis.call('PEXPIRE', held[5], life) end
  local limit, now = tonumber(ARGV[7]), tonumber(ARGV[9])
  if limit > 0 then
    local level = bucket_level(KEYS[7], limit, now) + (tonumber(held[3]) or 0) - tonumber(ARGV[6])
    bucket_store(KEYS[7], math.min(limit, level), limit, now)
  end
end
-- Write the record even if Valkey has lost the run: its usage must be counted, and SQL ignores a repeated run id.
if ARGV[5] ~= '' then
  local entry = {'r', ARGV[5], 't', held[6] or ''}
  if ARGV[10] ~= '' then
    local is_behind = redis.call('XLEN', KEYS[4]) >= tonumber(ARGV[11])
    entry[5], entry[6] = 'b', is_behind and '' or ARGV[10]
  end
  redis.call('XADD', KEYS[4], '*', unpack(entry))
end
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
if held[7] then redis.call('ZREM', held[7], ARGV[1]) end
redis.call('ZREM', KEYS[8], ARGV[1])
redis.call('SREM', KEYS[9], ARGV[1])
redis.call('ZREM', KEYS[10], ARGV[1])
return 'ended'
