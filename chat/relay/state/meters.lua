-- Meters: how much of each limit of a request's scopes is used. This text is put before the scripts that use it.
--
-- A request comes with its scopes (Scope.plain of meters.py), each
--   {hash of rates, live runs, most live runs (0 = none), live runs at the model, percent of the queue (0 = none),
--    {field, limit, period (ms), measure, field, limit, …}}
-- and with what it costs by measure: {requests, input tokens, output tokens, all tokens}.
--
-- A rate holds at most its limit and is given back steadily over its period. Its field packs what is used, when that
-- was so, and the limit then. A lowered limit keeps the fraction that is used, a raised one the amount.
-- More than the limit may be used: the excess of earlier requests.

local KEPT_MS = 25 * 3600 * 1000
local SLACK = 1e-6 -- of rounding

local function rate_used(held, limit, period, now)
  if not held then return 0, now, KEPT_MS end
  local used, at, before = struct.unpack('ddd', held)
  if before > limit then used = used * limit / before end
  if at > now + period then at = now end -- the clock was wrong, or it is now
  return math.max(0, used - math.max(0, now - at) * limit / period), math.max(at, now), now - at
end

-- Read every rate. Return, by scope, lists of {used, at, ms since the last change}, and, if `keeps_limits`, the limit
-- that is held, by which it is read.
local function rates_read(scopes, now, keeps_limits)
  local levels = {now = now}
  for index, scope in ipairs(scopes) do
    local rates, fields, own = scope[6], {}, {}
    for place = 1, #rates, 4 do fields[#fields + 1] = rates[place] end
    if #fields > 0 then
      local held = redis.call('HMGET', scope[1], unpack(fields))
      for number = 1, #fields do
        local limit, kept = rates[4 * number - 2], nil
        if keeps_limits and held[number] then
          kept = select(3, struct.unpack('ddd', held[number]))
        end
        local used, at, gap = rate_used(held[number], kept or limit, rates[4 * number - 1], now)
        own[number] = {used, at, gap, kept}
      end
    end
    levels[index] = own
  end
  return levels
end

-- Return the refusal with the longest wait, nil if there is none: {wait (ms), measure, scope, rate}.
local function rates_refusal(scopes, levels, costs)
  local found
  for index, scope in ipairs(scopes) do
    local rates = scope[6]
    for number, level in ipairs(levels[index]) do
      local limit, period, measure = rates[4 * number - 2], rates[4 * number - 1], rates[4 * number]
      -- A request of more than the whole limit passes if nothing is used; more than the limit is used then.
      local over = level[1] + math.min(costs[measure], limit) - limit
      if over > SLACK then
        local wait = over * period / limit
        if not found or wait > found[1] then found = {wait, measure, index, number} end
      end
    end
  end
  return found
end

-- Add `costs` to every rate, and store them. A negative cost gives back. A level has a limit of its own where it is
-- not that of the scope.
local function rates_add(scopes, levels, costs)
  for index, scope in ipairs(scopes) do
    local rates, stored, life, gap = scope[6], {}, KEPT_MS, 0
    for number, level in ipairs(levels[index]) do
      local limit, period = level[4] or rates[4 * number - 2], rates[4 * number - 1]
      level[1] = math.max(0, level[1] + costs[rates[4 * number]])
      stored[#stored + 1] = rates[4 * number - 3]
      stored[#stored + 1] = struct.pack('ddd', level[1], level[2], limit)
      life = math.max(life, math.ceil(level[1] * period / limit) + 1000)
      gap = math.max(gap, level[3])
    end
    if #stored > 0 then
      redis.call('HSET', scope[1], unpack(stored))
      -- Not with each of many requests a second.
      if gap > 1000 or life > KEPT_MS or levels.now % 16 == 0 then redis.call('PEXPIRE', scope[1], life) end
    end
  end
end

-- Add what a run has used beyond what it was charged. The limits may have changed since its admission: what is held
-- keeps the limit that is held with it, as only an admission knows the present one.
local function rates_settle(scopes, now, less)
  rates_add(scopes, rates_read(scopes, now, true), less)
end

-- Return of requests and of tokens what the tightest rate has: limit, left, ms until all is there; zeros without one.
local function rates_tightest(scopes, levels)
  local answer = {0, 0, 0, 0, 0, 0}
  for index, scope in ipairs(scopes) do
    local rates = scope[6]
    for number, level in ipairs(levels[index]) do
      local limit, place = rates[4 * number - 2], rates[4 * number] == 1 and 1 or 4
      local left = math.floor(limit - level[1] + SLACK)
      if answer[place] == 0 or left < answer[place + 1] then
        answer[place], answer[place + 1] = limit, left
        answer[place + 2] = math.ceil(level[1] * rates[4 * number - 1] / limit)
      end
    end
  end
  return answer
end
