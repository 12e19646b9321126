"""The token budget of a step follows the speed of the machine, also after a busy start."""

from __future__ import annotations

from engine.execution.token_budget import MIN_SAMPLES, STEP_SECONDS, AdaptiveTokenBudget
from engine.sequence import Chunk, StepPlan
from tests.engine.scheduling.sequences import make_scheduler, make_sequence, sample

LEAST, MOST = 64, 2048


class Machine:
    """A machine that computes `rate` tokens a second, with `delay` added to each step."""

    def __init__(self, rate):
        self.rate = rate
        self.delay = 0.0
        self.now = 0.0

    def compute(self, budget, num_tokens, num_decodes=0):
        sequence = make_sequence(1, [1] * max(num_tokens, 1))
        chunks = [Chunk(sequence, 0, 1, True)] * num_decodes + (
            [Chunk(sequence, 0, num_tokens, True)] if num_tokens else []
        )
        budget.begin()
        self.now += (num_tokens + num_decodes) / self.rate + self.delay
        return budget.end(StepPlan(tuple(chunks)))

    def settle(self, budget, steps=60):
        """Run steps full of prompts; return the final budget."""
        for _ in range(steps):
            self.compute(budget, budget.max_num_batched_tokens)
        return budget.max_num_batched_tokens


def make_budget(machine, max_num_batched_tokens=LEAST):
    return AdaptiveTokenBudget(max_num_batched_tokens, LEAST, MOST, MOST, 16, lambda: machine.now)


def test_the_token_budget_recovers_from_a_busy_start():
    """A budget of 64 tokens, measured on a busy machine, made a prompt of 12,051 take 124 s for good."""
    machine = Machine(rate=4000.0)
    budget = make_budget(machine)
    scheduler = make_scheduler(num_blocks=4000, max_num_batched_tokens=LEAST)
    scheduler.add(make_sequence(1, list(range(12_051))))
    num_steps = 0
    while plan := scheduler.plan():
        budget.begin()
        machine.now += sum(chunk.num_positions for chunk in plan.chunks) / machine.rate
        num_steps += 1
        if budget.end(plan):
            scheduler.resize(budget.max_num_batched_tokens, budget.max_num_batched_tokens)
        scheduler.advance(plan, sample(plan))
    assert budget.max_num_batched_tokens == 400
    assert num_steps < 12_051 / 400 + 3 * MIN_SAMPLES + 5


def test_the_token_budget_follows_the_speed_of_the_machine():
    machine = Machine(rate=10_000.0)
    budget = make_budget(machine)
    assert machine.settle(budget) == 992
    machine.rate = 2100.0
    assert machine.settle(budget) == 240, "a small difference is no reason to change"
    machine.rate = 10_000.0
    assert machine.settle(budget) == 992


def test_steps_stay_within_their_bounds():
    machine = Machine(rate=1e6)
    budget = make_budget(machine)
    assert machine.settle(budget) == MOST
    machine.rate = 1.0
    assert machine.settle(budget, 200) == LEAST


def test_a_machine_that_was_far_above_its_bounds_slows_down_at_once():
    """The budget stayed at its most until what had been affordable before was halved often enough."""
    machine = Machine(rate=1e6)
    budget = make_budget(machine)
    assert machine.settle(budget) == MOST
    machine.rate = 5000.0
    assert machine.settle(budget, 4 * MIN_SAMPLES) == 512


def test_a_few_disturbed_steps_change_nothing():
    machine = Machine(rate=4000.0)
    budget = make_budget(machine)
    settled = machine.settle(budget)
    for number in range(200):
        machine.delay = 1.0 if number % 3 else 0.0
        assert not machine.compute(budget, settled)


def test_steps_with_few_prompt_tokens_do_not_change_the_budget():
    machine = Machine(rate=1000.0)
    budget = make_budget(machine, 512)
    for _ in range(50):
        assert not machine.compute(budget, 0, num_decodes=60)
        assert not machine.compute(budget, 200)
    assert machine.compute(budget, 256) is False
    for _ in range(MIN_SAMPLES):
        machine.compute(budget, 256, num_decodes=4)
    assert budget.max_num_batched_tokens == 256


def test_a_cut_step_has_the_tokens_whose_layers_end_in_time():
    """It follows the machine, also below the least of other steps."""
    machine = Machine(rate=1000.0)
    budget = AdaptiveTokenBudget(
        96, LEAST, MOST, MOST, 16, lambda: machine.now, max_step_wait_s=0.25, num_cuts=30, most_cut=512
    )
    assert budget.cut_step_tokens == 512
    machine.rate = 20.0
    machine.settle(budget, 200)
    assert (budget.max_num_batched_tokens, budget.cut_step_tokens) == (LEAST, 144)
    machine.rate = 1000.0
    machine.settle(budget)
    assert budget.cut_step_tokens == 512
    assert make_budget(machine).cut_step_tokens == 0


def test_steps_with_decodes_are_smaller_where_the_least_takes_too_long():
    """64 tokens of a large model took longer than the gap that a stream beside them may have."""
    machine = Machine(rate=200.0)
    budget = AdaptiveTokenBudget(
        LEAST, LEAST, MOST, MOST, 16, lambda: machine.now, affordable=20.0, max_step_wait_s=0.25
    )
    assert (budget.max_num_batched_tokens, budget.mixed_step_tokens) == (LEAST, 32)
    machine.rate = 100.0
    for _ in range(60):
        machine.compute(budget, budget.mixed_step_tokens - 2, num_decodes=2)
    assert (budget.max_num_batched_tokens, budget.mixed_step_tokens) == (LEAST, 16)
    machine.rate = 10_000.0
    for _ in range(60):
        machine.compute(budget, budget.mixed_step_tokens - 2, num_decodes=2)
    assert budget.max_num_batched_tokens == budget.mixed_step_tokens > 500
    assert make_budget(machine).mixed_step_tokens == LEAST


def test_a_clock_that_stands_still_does_not_change_the_budget():
    machine = Machine(rate=float("inf"))
    budget = make_budget(machine)
    assert machine.settle(budget) == LEAST


def test_the_token_budget_changes_at_most_by_a_factor_of_two():
    machine = Machine(rate=100 * LEAST / STEP_SECONDS)
    budget = make_budget(machine)
    for _ in range(MIN_SAMPLES):
        machine.compute(budget, budget.max_num_batched_tokens)
    assert budget.max_num_batched_tokens == 2 * LEAST
