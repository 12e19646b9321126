-- The news of one step: to every run's log, and if all of it was taken, to the web processes that read; in one turn of the server.
--
-- KEYS  the logs
-- ARGV  1 life of a new log (ms)  then for each log: entry id, packed events, '1' = the log exists, so a missing one is a loss
--       then for each web process: channel, packed message
-- Returns 'OK', or, where any log has refused, one answer for each: its entry's id, an error, or nil; then nobody was told.

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
