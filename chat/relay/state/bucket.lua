-- A bucket holds at most a minute's worth and refills steadily; below zero is the excess of earlier requests.
-- A missing one is full: it is kept only as long as it is not. Put before the scripts that need it.

local function bucket_level(key, limit, now)
  if limit == 0 then return nil end
  local held = redis.call('HMGET', key, 'level', 'at')
  local level, at = tonumber(held[1]) or limit, tonumber(held[2]) or now
  return math.min(limit, level + math.max(0, now - at) * limit / 60000)
end

local function bucket_wait_ms(level, limit, target)
  if not level or level >= target then return 0 end
  return math.ceil((target - level) * 60000 / limit)
end

local function bucket_store(key, level, limit, now)
  redis.call('HSET', key, 'level', level, 'at', now)
  redis.call('PEXPIRE', key, bucket_wait_ms(level, limit, limit) + 1000)
end

