-- Hard budgets: what is spent and reserved of each in its window. This text is put before the scripts that use it.
--
-- A request comes with the keys of its budgets' windows, and with five doubles of each (budgets_plain of meters.py):
-- amount, price of an input token, of a cached one, of an output one, of one of reasoning, which is a part of the output.
-- A key is a hash: `spent`, as SQL and the stream of records have it; `held`, the sum of what runs reserve;
-- `run:<id>`, what a run reserves. Without `spent` nobody knows what is spent, and nothing is admitted. Who fills it
-- (budget_set.lua) says how long it is kept.

-- All amounts are whole numbers below 2^53, so sums are exact.
local function whole(number)
  return string.format('%d', number)
end

local BUDGET = '<ddddd'

-- Return what refuses the request, or nil, the cap that the budgets leave to each answer, what each of them reserves,
-- and what all runs reserve of each then. The keys are names[before + 1] and on.
-- `size`: {bound of the prompt, bound of an answer (-1 = none), answers, 1 if answers may be capped,
--         least of an answer}
-- Refusals: {'unknown' | 'quota' | 'held' | 'beyond' (the whole budget does not cover it), number of the budget}
local function budgets_plan(names, before, packed, size)
  local cap, plans = size[2], {}
  local is_open, least_answer = size[4] == 1, math.max(1, size[5])
  -- An answer of more than is asked for, or than the context takes, is refused elsewhere, in better words.
  if cap >= 0 then least_answer = math.min(least_answer, cap) end
  for number = 1, #packed / 40 do
    local figures = redis.call('HMGET', names[before + number], 'spent', 'held')
    if not figures[1] then return {'unknown', number} end
    local amount, input, cached, output, reasoning = struct.unpack(BUDGET, packed, 40 * number - 39)
    local prompt, each = size[1] * math.max(input, cached), math.max(output, reasoning) * size[3]
    plans[number] = {amount, prompt, each, tonumber(figures[1]), tonumber(figures[2]) or 0}
  end
  for number, plan in ipairs(plans) do
    local amount, prompt, each, spent, held = unpack(plan)
    local least = prompt + (is_open and least_answer or math.max(0, cap)) * each
    if least > amount then return {'beyond', number} end
    if spent >= amount or spent + least > amount then return {'quota', number} end
    if spent + held + least > amount then return {'held', number} end
    if is_open and each > 0 then
      local covered = math.floor((amount - spent - held - prompt) / each)
      if cap < 0 or covered < cap then cap = covered end
    end
  end
  local reserved, held = {}, {}
  for number, plan in ipairs(plans) do
    reserved[number] = math.ceil(plan[2] + math.max(0, cap) * plan[3])
    held[number] = plan[5] + reserved[number]
  end
  return nil, cap, reserved, held
end

local function budgets_reserve(names, before, reserved, held, run_id)
  local field = 'run:' .. run_id
  for number, amount in ipairs(reserved) do
    redis.call('HSET', names[before + number], field, whole(amount), 'held', whole(held[number]))
  end
end

-- Replace what a run has reserved by what it has cost. What was rebuilt without the run is left as it is.
local function budgets_settle(names, packed, run_id, prompt, cached, completion, reasoning)
  local field = 'run:' .. run_id
  for number, name in ipairs(names) do
    local known = redis.call('HMGET', name, field, 'held', 'spent')
    if known[1] then
      local _, input, cheaper, output, thought = struct.unpack(BUDGET, packed, 40 * number - 39)
      local cost = (prompt - cached) * input + cached * cheaper
      cost = cost + (completion - reasoning) * output + reasoning * thought
      local held = whole(tonumber(known[2]) - tonumber(known[1]))
      -- What is spent is unknown where it was forgotten (budget_counters.py); SQL has this run then.
      if known[3] then
        redis.call('HSET', name, 'held', held, 'spent', whole(tonumber(known[3]) + math.floor(cost + 0.5)))
      else
        redis.call('HSET', name, 'held', held)
      end
      redis.call('HDEL', name, field)
    end
  end
end
