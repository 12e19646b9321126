-- Read what is left of the limits of a request's scopes, without a charge. Needs meters.lua before it.
--
-- ARGV  1 now (ms)  2 packed scopes
-- Returns of the tightest rate {requests limit, left, ms until all is there, tokens limit, left, ms until all is there}

local scopes = cmsgpack.unpack(ARGV[2])
return rates_tightest(scopes, rates_read(scopes, tonumber(ARGV[1])))
