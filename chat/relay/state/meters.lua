-- Meters: how much of each limit of a request's scopes is used. This text is put before the scripts that use it.
--
-- A scope has six rates (SLOTS of meters.py: four by the minute, then two by the day) and one meter, a string of doubles:
-- what is used of each rate, when that was so of the minutes and of the days (ms), and the limits then, 0 = none. A
-- request comes with the limits of its scopes (scopes_plain of meters.py), of each scope eight doubles: six limits, most
-- live runs, percent of the queue; and with its costs by measure: requests, input tokens, output tokens, all tokens.
--
-- A rate holds at most its limit and is given back steadily over its period. A lowered limit keeps the fraction that is
-- used, a raised one the amount. More than the limit may be used: the excess of earlier requests. What is used of a
-- rate whose limit was taken away is given back by that limit.

local MINUTE, DAY = 60000, 86400000
local PERIODS = {MINUTE, MINUTE, MINUTE, MINUTE, DAY, DAY}
local KEPT_MS = 25 * 3600 * 1000
local SLACK = 1e-6 -- of rounding
local METER, LIMITS, COSTS = '<dddddddd', '<dddddd', '<dddd'
local LIMITS_AT = 65 -- in a meter, whose first part METER packs

local function costs_by_slot(requests, input, output, tokens)
  return {requests, tokens, input, output, requests, tokens}
end

-- Take limits in the place of those that a meter has. Return those by which it is given back.
local function limits_changed(meter, held, own, is_end)
  local limits = {}
  for slot = 1, 6 do
    local before, limit = held[slot], own[slot]
    -- At its end a run does not know the present limits.
    if is_end and before > 0 then
      limit = before
    elseif limit == 0 then
      limit = meter[slot] > 0 and before or 0
    elseif before > limit then
      meter[slot] = meter[slot] * limit / before
    end
    limits[slot] = limit
  end
  return limits
end

-- Read the meters of scopes as they are now. Return, by scope, {limits of the request, limits of the meter, meter, ms
-- since its last change, whether the limits are those that are stored, whether more than a limit is used (meters_add)}.
local function meters_read(records, packed, now, is_end)
  local scopes = {}
  for index = 1, #packed / 64 do
    local from = 64 * index - 63
    local own = {struct.unpack(METER, packed, from)}
    local record = records[index]
    if not record then
      scopes[index] = {own, own, {0, 0, 0, 0, 0, 0, now, now}, KEPT_MS, false}
    else
      local meter, limits = {struct.unpack(METER, record)}, own
      local is_stored = string.sub(record, LIMITS_AT) == string.sub(packed, from, from + 47)
      if not is_stored then
        limits = limits_changed(meter, {struct.unpack(LIMITS, record, LIMITS_AT)}, own, is_end)
      end
      local gap = now - meter[7]
      for place = 7, 8 do
        local first, last, period = 1, 4, MINUTE
        if place == 8 then first, last, period = 5, 6, DAY end
        local at = meter[place]
        if at > now + period then at = now end -- the clock was wrong, or it is now
        if at < now then
          local part = (now - at) / period
          for slot = first, last do
            local used = meter[slot] - part * limits[slot]
            meter[slot] = used > 0 and used or 0
          end
          at = now
        end
        meter[place] = at
      end
      scopes[index] = {own, limits, meter, gap, is_stored}
    end
  end
  return scopes
end

-- Return the refusal with the longest wait, nil if there is none: {wait (ms), slot, scope}.
local function meters_refusal(scopes, costs)
  local found
  for index = 1, #scopes do
    local own, meter = scopes[index][1], scopes[index][3]
    for slot = 1, 6 do
      local limit, cost = own[slot], costs[slot]
      -- A request of more than the whole limit passes if nothing is used; more than the limit is used then.
      local over = meter[slot] + (cost < limit and cost or limit) - limit
      if over > SLACK and limit > 0 then
        local wait = over * PERIODS[slot] / limit
        if not found or wait > found[1] then found = {wait, slot, index} end
      end
    end
  end
  return found
end

-- Add costs to the rates that the request is limited by. A negative cost gives back.
-- Return of requests and of tokens what the tightest rate has then: limit, left, ms until all is there; zeros without one.
local function meters_add(scopes, costs)
  local least, least_of, used_of = {}, {0, 0}, {}
  for index = 1, #scopes do
    local scope = scopes[index]
    local own, meter = scope[1], scope[3]
    for slot = 1, 6 do
      local limit = own[slot]
      if limit > 0 then
        local used = meter[slot] + costs[slot]
        if used < 0 then used = 0 end
        if used > limit then scope[6] = true end
        meter[slot] = used
        local left, kind = limit - used, (slot == 1 or slot == 5) and 1 or 2
        if not least[kind] or left < least[kind] then
          left = math.floor(left + SLACK)
          if not least[kind] or left < least[kind] then
            least[kind], least_of[kind], used_of[kind] = left, limit, used * PERIODS[slot] / limit
          end
        end
      end
    end
  end
  return {least_of[1], least[1] or 0, math.ceil(used_of[1] or 0), least_of[2], least[2] or 0, math.ceil(used_of[2] or 0)}
end

-- Return how long a meter is kept: at least until all of it is given back.
local function meter_life(meter, limits)
  local life = KEPT_MS
  for slot = 1, 6 do
    local used, limit = meter[slot], limits[slot]
    if used > limit and limit > 0 then life = math.max(life, math.ceil(used * PERIODS[slot] / limit) + 1000) end
  end
  return life
end

-- Store the meters of scopes under names[before + 1] and on. A scope without rates has none.
local function meters_store(scopes, names, before, now)
  for index = 1, #scopes do
    local limits, meter, gap, is_stored, is_over = unpack(scopes[index], 2, 6)
    local name = names[before + index]
    if is_stored then
      redis.call('SETRANGE', name, '0', struct.pack(METER, unpack(meter, 1, 8)))
      -- Not with each of many requests a second.
      if is_over or gap > 1000 or now % 16 == 0 then redis.call('PEXPIRE', name, meter_life(meter, limits)) end
    elseif math.max(unpack(limits, 1, 6)) > 0 then
      local packed = struct.pack(METER, unpack(meter, 1, 8)) .. struct.pack(LIMITS, unpack(limits, 1, 6))
      redis.call('SET', name, packed, 'PX', meter_life(meter, limits))
    end
  end
end
