"""A run that is stopped while its prompt is computed gives its place and its blocks to others at the next step."""

import pytest

from engine.messages import AbortSequences
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.core.test_loop import VOCAB_SIZE, Stage, tokens_of
from tests.engine.in_process import make_core

NUM_BLOCKS = 64
PROMPT = [number % 7 + 1 for number in range(200)]
"""It fills most of the cache and takes seven steps of 32 tokens."""


@pytest.fixture
def stage():
    """One sequence runs at once, the others wait."""
    stage = Stage()
    stage.scheduler = Scheduler(NUM_BLOCKS, 4, 32, 1, 100, True)
    sampler = Sampler(VOCAB_SIZE, "cpu")
    stage.core = make_core(stage.scheduler, stage.runner, sampler, stage.channel, clock=lambda: 50.0)
    yield stage
    stage.run_until_idle()
    assert stage.scheduler.check_integrity() == ""
    assert stage.scheduler.stats().num_free_blocks == NUM_BLOCKS


@pytest.mark.parametrize("num_steps", [1, 3, 6])
def test_who_waits_runs_at_the_next_step(stage, num_steps):
    stage.add(1, PROMPT)
    stage.add(2, PROMPT[:10], max_tokens=2)
    assert [stage.step() for _ in range(num_steps)] == [[]] * num_steps
    assert stage.scheduler.stats().num_running == 1
    aborted, said = stage.step(AbortSequences([1]))
    assert (aborted.seq_id, aborted.finish) == (1, "aborted")
    assert [chunk.sequence.seq_id for chunk in stage.runner.plans[-1].chunks] == [2]
    assert (said.seq_id, said.token_ids) == (2, [PROMPT[9] + 1])


def test_its_blocks_are_free_before_the_next_step_and_its_prefix_is_still_found(stage):
    """What was computed of it is no loss: the same question asked again goes on from there."""
    stage.add(1, PROMPT)
    for _ in range(3):
        stage.step()
    assert stage.scheduler.stats().num_free_blocks < NUM_BLOCKS
    (aborted,) = stage.step(AbortSequences([1]))
    assert (aborted.finish, aborted.token_ids) == ("aborted", [])
    assert stage.scheduler.stats().num_free_blocks == NUM_BLOCKS
    num_plans = len(stage.runner.plans)
    stage.add(2, PROMPT, max_tokens=1)
    outputs = stage.step()
    while not outputs:
        outputs = stage.step()
    assert outputs[0].num_cached == 96
    assert len(stage.runner.plans) - num_plans == 4
    assert tokens_of(outputs, 2) == [PROMPT[-1] + 1]


def test_stopping_all_of_many_prompts_leaves_nothing_behind(stage):
    for seq_id in range(1, 20):
        stage.add(seq_id, PROMPT[seq_id:])
    stage.step()
    outputs = stage.step(AbortSequences(list(range(1, 20))))
    assert {output.seq_id: output.finish for output in outputs} == dict.fromkeys(range(1, 20), "aborted")
    assert stage.step() == []
    stats = stage.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, NUM_BLOCKS)
