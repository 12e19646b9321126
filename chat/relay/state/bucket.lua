-- Token buckets. A bucket holds at most one minute's limit and refills steadily; a level below zero is the excess of
-- earlier requests.
-- A missing bucket is full, so a bucket expires once it has refilled. This text is put before the scripts that use it.

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

