-- Set what is spent of a hard budget in a window to what SQL has, and what is reserved to what live runs reserve.
--
-- KEYS  1 the budget's window (budgets.lua)
-- ARGV  1 spent by SQL  2 prefix of the keys of runs  3 life (ms), 0 = for ever
--       4 what was known to be spent before SQL was asked, '' = nothing
-- Returns 'set', or 'changed': a run has ended since, so that SQL's answer may lack it.

if (redis.call('HGET', KEYS[1], 'spent') or '') ~= ARGV[4] then return 'changed' end
local held, fields = 0, redis.call('HGETALL', KEYS[1])
for place = 1, #fields, 2 do
  local run_id = string.match(fields[place], '^run:(.+)$')
  if run_id then
    local state = redis.call('HGET', ARGV[2] .. run_id .. ':meta', 'state')
    if state and state ~= 'ended' then
      held = held + tonumber(fields[place + 1])
    else
      redis.call('HDEL', KEYS[1], fields[place])
    end
  end
end
redis.call('HSET', KEYS[1], 'spent', ARGV[1], 'held', string.format('%.0f', held))
if tonumber(ARGV[3]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 'set'
