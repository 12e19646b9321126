-- Count a try to sign in before its password is looked at, unless there were too many.
-- KEYS: the counters that bound it. ARGV: the window in seconds, then the bound of each counter.
-- Returns 0 after counting it in all of them, else the seconds until it may be tried again; then nothing is counted.
local wait = 0
for i, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[i + 1]) then
    wait = math.max(wait, 1, redis.call('TTL', key))
  end
end
if wait > 0 then
  return wait
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, 0, 'NX', 'EX', ARGV[1])
  redis.call('INCR', key)
end
return 0
