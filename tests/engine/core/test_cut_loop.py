"""The step loop over a scripted runner whose steps of prompts are computed in three layers, one a turn."""

import pytest
import torch

from engine.execution.cut_steps import CutSteps
from engine.messages import AbortSequences, AnnounceSteps, QueryStats, StepStarted
from engine.sampling.sampler import Sampler
from engine.sequence import SequenceStatus
from tests.engine.core.test_loop import VOCAB_SIZE, ScriptedRunner, Stage, tokens_of
from tests.engine.in_process import make_core

NUM_LAYERS = 3
PROMPT = list(range(1, 10)) * 4
"""Of 36 tokens: two steps, of 32 and 4."""


class LayeredRunner(ScriptedRunner):
    """A scripted runner that also computes steps of more than eight tokens layer by layer."""

    def __init__(self):
        super().__init__()
        self.num_layers_done = 0

    def can_cut(self, num_tokens):
        return num_tokens > 8

    def begin(self, plan):
        self.plans.append(plan)
        return ScriptedStep(self)

    def finish(self, plan, hidden):
        self.plans.pop()
        chunks = [chunk for chunk in plan.chunks if chunk.sequence.status is SequenceStatus.RUNNING]
        return self.forward(type(plan)(tuple(chunks)))


class ScriptedStep:
    num_layers = NUM_LAYERS

    def __init__(self, runner):
        self.num_done = 0
        self._runner = runner

    def advance(self):
        self.num_done += 1
        self._runner.num_layers_done += 1
        if self._runner.num_layers_done in self._runner.broken:
            raise RuntimeError("a layer failed")
        return torch.zeros(1) if self.num_done == self.num_layers else None


@pytest.fixture
def stage():
    stage = Stage()
    stage.runner = LayeredRunner()
    stage.core = make_core(
        stage.scheduler,
        stage.runner,
        Sampler(VOCAB_SIZE, "cpu"),
        stage.channel,
        cuts=CutSteps(stage.runner, 0.0),
        clock=lambda: 50.0,
    )
    yield stage
    assert stage.run_until_idle() == []
    assert stage.scheduler.check_integrity() == ""
    assert stage.scheduler.stats().num_free_blocks == 64


def finish(stage, turns=30):
    return [output for _ in range(turns) for output in stage.step()]


def test_a_step_of_prompts_takes_a_turn_of_the_loop_for_each_layer(stage):
    stage.add(1, PROMPT[:20], max_tokens=2)
    assert [stage.step(), stage.step()] == [[], []]
    assert [output.token_ids for output in stage.step()] == [[3]]
    assert [output.token_ids for output in stage.step()] == [[4]]
    assert stage.runner.num_layers_done == NUM_LAYERS


def test_a_newcomer_is_computed_between_two_layers(stage):
    stage.add(1, PROMPT, max_tokens=1)
    stage.step()
    stage.add(2, [11], max_tokens=2)
    outputs = stage.step()
    assert [(out.seq_id, out.token_ids) for out in outputs] == [(2, [12])]
    assert stage.runner.num_layers_done == 2
    outputs = finish(stage)
    assert (tokens_of(outputs, 1), tokens_of(outputs, 2)) == ([10], [13])


def test_an_abort_of_all_in_flight_drops_the_layers_that_are_left(stage):
    stage.add(1, PROMPT)
    stage.step()
    (output,) = stage.step(AbortSequences([1]))
    assert output.finish == "aborted"
    assert stage.scheduler.stats().num_free_blocks == 64
    assert finish(stage) == []
    assert stage.runner.num_layers_done == 1


def test_an_abort_of_one_in_flight_leaves_the_others(stage):
    stage.add(1, PROMPT[:12], max_tokens=1)
    stage.add(2, PROMPT[2:14], max_tokens=1)
    stage.step()
    (aborted,) = stage.step(AbortSequences([1]))
    assert aborted.finish == "aborted"
    assert stage.scheduler.stats().num_free_blocks < 64
    assert stage.scheduler.check_integrity() == ""
    assert [(out.seq_id, out.token_ids) for out in finish(stage)] == [(2, [6])]


def test_a_layer_that_fails_ends_the_sequences_in_flight_alone(stage):
    stage.runner.broken = {2}
    stage.add(1, PROMPT)
    stage.step()
    stage.add(2, [11], max_tokens=2)
    outputs = finish(stage)
    assert {out.seq_id: out.finish for out in outputs if out.finish} == {1: "failed", 2: "length"}
    assert tokens_of(outputs, 2) == [12, 13]


def test_a_step_of_others_that_fails_leaves_the_one_in_flight(stage):
    stage.runner.fatal = {11}
    stage.add(1, PROMPT, max_tokens=1)
    stage.step()
    stage.add(2, [11])
    outputs = finish(stage)
    assert {out.seq_id: out.finish for out in outputs if out.finish} == {1: "length", 2: "failed"}


def test_each_part_of_a_step_is_announced(stage):
    """The worker must know what a core that died was computing."""
    stage.add(1, PROMPT[:20], max_tokens=1)
    assert stage.step(AnnounceSteps()) == [StepStarted([1])]
    stage.add(2, [11], max_tokens=1)
    started, output, again = stage.step()
    assert (started, output.seq_id, again) == (StepStarted([2]), 2, StepStarted([1]))
    assert [message for message in stage.step() if isinstance(message, StepStarted)] == [StepStarted([1])]
    finish(stage)


def test_a_step_in_flight_counts_once(stage):
    stage.add(1, PROMPT[:20], max_tokens=1)
    finish(stage)
    (stats,) = stage.step(QueryStats(check_integrity=True))
    assert (stats.num_steps, stats.integrity) == (1, "")
