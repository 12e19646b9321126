-- Hard budgets: what is spent and reserved of each in its window. This text is put before the scripts that use it.
--
-- A request comes with its budgets (BudgetMeter.plain of meters.py), each
--   {key of the window, until when it is kept (ms, 0 = for ever), amount, price of an input token,
--    of a cached one, of an output one, of one of reasoning, which is a part of the output}
-- The key is a hash: `spent`, as SQL and the stream of records have it; `held`, the sum of what runs reserve;
-- `run:<id>`, what a run reserves. Without `spent` nobody knows what is spent, and nothing is admitted.

-- All amounts are whole numbers below 2^53, so sums are exact.
local function whole(number)
  return string.format('%.0f', number)
end

-- Return what refuses the request, or nil, the cap that the budgets leave to each answer, what each of them reserves,
-- and what was read.
-- `size`: {bound of the prompt, bound of an answer (-1 = none), answers, 1 if answers may be capped,
--         least of an answer}
-- Refusals: {'unknown' | 'quota' | 'held' | 'beyond' (the whole budget does not cover it), number of the budget}
local function budgets_plan(budgets, size)
  local cap, levels = size[2], {}
  local is_open, least_answer = size[4] == 1, math.max(1, size[5])
  -- An answer of more than is asked for, or than the context takes, is refused elsewhere, in better words.
  if cap >= 0 then least_answer = math.min(least_answer, cap) end
  for number, budget in ipairs(budgets) do
    local held = redis.call('HMGET', budget[1], 'spent', 'held')
    if not held[1] then return {'unknown', number} end
    levels[number] = {tonumber(held[1]), tonumber(held[2]) or 0}
  end
  for number, budget in ipairs(budgets) do
    local spent, held = levels[number][1], levels[number][2]
    local prompt, each = size[1] * math.max(budget[4], budget[5]), math.max(budget[6], budget[7]) * size[3]
    local least = prompt + (is_open and least_answer or math.max(0, cap)) * each
    if least > budget[3] then return {'beyond', number} end
    if spent >= budget[3] or spent + least > budget[3] then return {'quota', number} end
    if spent + held + least > budget[3] then return {'held', number} end
    if is_open and each > 0 then
      local covered = math.floor((budget[3] - spent - held - prompt) / each)
      if cap < 0 or covered < cap then cap = covered end
    end
  end
  local reserved = {}
  for number, budget in ipairs(budgets) do
    local each = math.max(budget[6], budget[7]) * size[3]
    reserved[number] = math.ceil(size[1] * math.max(budget[4], budget[5]) + math.max(0, cap) * each)
  end
  return nil, cap, reserved, levels
end

local function budgets_reserve(budgets, reserved, levels, run_id, now)
  for number, budget in ipairs(budgets) do
    local held = whole(levels[number][2] + reserved[number])
    redis.call('HSET', budget[1], 'run:' .. run_id, whole(reserved[number]), 'held', held)
    if budget[2] > 0 then redis.call('PEXPIRE', budget[1], math.max(1000, budget[2] - now)) end
  end
end

-- Replace what a run has reserved by what it has cost. What was rebuilt without the run is left as it is.
local function budgets_settle(budgets, run_id, prompt, cached, completion, reasoning)
  for _, budget in ipairs(budgets) do
    local known = redis.call('HMGET', budget[1], 'run:' .. run_id, 'held', 'spent')
    if known[1] then
      redis.call('HDEL', budget[1], 'run:' .. run_id)
      local cost = (prompt - cached) * budget[4] + cached * budget[5]
      cost = cost + (completion - reasoning) * budget[6] + reasoning * budget[7]
      redis.call('HSET', budget[1], 'held', whole(tonumber(known[2]) - tonumber(known[1])))
      -- What is spent is unknown where it was forgotten (budget_counters.py); SQL has this run then.
      if known[3] then
        redis.call('HSET', budget[1], 'spent', whole(tonumber(known[3]) + math.floor(cost + 0.5)))
      end
    end
  end
end
