-- Take back what a try counted that turned out well.
-- KEYS: the mark of an account that has signed in from an address, then the counters, that of account and address first.
-- ARGV: the seconds that the mark stays.
redis.call('SET', KEYS[1], 1, 'EX', ARGV[1])
redis.call('DEL', KEYS[2])
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    redis.call('DECR', KEYS[i])
  end
end
return 0
