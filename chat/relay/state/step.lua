-- Append the events of one step to the logs of their runs and, if every log accepts them, publish them to the web
-- processes that read.
--
-- KEYS  the logs
-- ARGV  1 life of a new log (ms)  then for each log: entry id, packed events, '1' = the log must exist; nil if
--       Valkey has lost it
--       then for each web process: channel, packed message
-- Returns 'OK', or, if any log refused, one reply per log: the id of its entry, an error, or nil. In that case
--       nothing is published.

local verdicts, is_whole, at = {}, true, 2
for i, key in ipairs(KEYS) do
  local id, events, is_logged = ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1'
  at = at + 3
  local added
  if is_logged then
    added = redis.pcall('XADD', key, 'NOMKSTREAM', id, 'e', events)
  else
    added = redis.pcall('XADD', key, id, 'e', events)
    redis.call('PEXPIRE', key, ARGV[1])
  end
  if type(added) == 'table' and added.ok then added = added.ok end
  is_whole = is_whole and type(added) == 'string'
  verdicts[i] = added
end
if not is_whole then return verdicts end
for i = at, #ARGV, 2 do redis.call('PUBLISH', ARGV[i], ARGV[i + 1]) end
return 'OK'
