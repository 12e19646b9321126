-- Read what is left of a caller's limits, without a charge. Needs bucket.lua before it.
--
-- KEYS  1 bucket of requests  2 bucket of tokens
-- ARGV  1 now (ms)  2 requests/min, 0 = none  3 tokens/min, 0 = none
-- Returns {requests left, ms until full, tokens left, ms until full}

local answer = {}
for index = 1, 2 do
  local limit = tonumber(ARGV[index + 1])
  local level = bucket_level(KEYS[index], limit, tonumber(ARGV[1]))
  answer[2 * index - 1], answer[2 * index] = math.floor(level or 0), bucket_wait_ms(level, limit, limit)
end
return answer
