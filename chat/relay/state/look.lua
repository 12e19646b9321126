-- Read what is left of the limits of a request's scopes, without a charge. Needs meters.lua before it.
--
-- KEYS  the meters of the scopes
-- ARGV  1 now (ms)  2 packed limits of the scopes
-- Returns of the tightest rate {requests limit, left, ms until all is there, tokens limit, left, ms until all is there}

local records = #KEYS > 0 and redis.call('MGET', unpack(KEYS)) or {}
return meters_add(meters_read(records, ARGV[2], tonumber(ARGV[1])), costs_by_slot(0, 0, 0, 0))
