"""The step loop over a scripted runner: outputs, failures, aborts and waits."""

import queue

import pytest
import torch

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.api.errors import EngineFailure
from engine.execution.prompts import PromptResults
from engine.messages import (
    AbortSequences,
    AddSequence,
    AnnounceSteps,
    CoreStats,
    QueryStats,
    Shutdown,
    StepResult,
    StepStarted,
)
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core

VOCAB_SIZE = 32
END = 31


class ScriptedRunner:
    """A runner whose next token is the last one plus one; `broken` tokens yield NaN, `fatal` ones raise."""

    def __init__(self):
        self.plans = []
        self.broken = set()
        self.fatal = set()
        self.error = RuntimeError("out of memory")

    def forward(self, plan):
        self.plans.append(plan)
        logits = torch.zeros(sum(chunk.samples for chunk in plan.chunks), VOCAB_SIZE)
        for row, sequence in enumerate(chunk.sequence for chunk in plan.chunks if chunk.samples):
            (last,) = sequence.token_slice(sequence.num_tokens - 1, sequence.num_tokens)
            if last in self.fatal:
                raise self.error
            logits[row, (last + 1) % VOCAB_SIZE] = float("nan") if last in self.broken else 10.0
        return logits

    def prompt_results(self, plan):
        return PromptResults()


class Stage:
    def __init__(self, num_blocks=64, max_num_batched_tokens=32):
        self.channel = QueueChannel()
        self.runner = ScriptedRunner()
        self.scheduler = Scheduler(num_blocks, 4, max_num_batched_tokens, 8, 100, True)
        self.core = make_core(self.scheduler, self.runner, Sampler(VOCAB_SIZE, "cpu"), self.channel, clock=lambda: 50.0)

    def add(self, seq_id, prompt_ids, max_tokens=4, output_ids=(), **changes):
        message = AddSequence(
            seq_id=seq_id,
            prompt_ids=list(prompt_ids),
            output_ids=list(output_ids),
            sampling=SamplingParams(temperature=0.0, seed=1),
            stop=StopRules(),
            logprobs=changes.pop("logprobs", LogprobOptions()),
            stop_ids=[END],
            max_tokens=max_tokens,
            cache_root=b"root",
        )
        self.channel.inbox.put(message)

    def step(self, *messages):
        """Take one turn of the loop with these messages; return its outputs."""
        for message in messages:
            self.channel.inbox.put(message)
        assert self.core.handle_messages(self.channel.receive(block=False))
        self.core.step()
        return self.emitted()

    def emitted(self):
        outputs = []
        while not self.channel.outbox.empty():
            message = self.channel.outbox.get()
            outputs += message.outputs if isinstance(message, StepResult) else [message]
        return outputs

    def run_until_idle(self):
        outputs = []
        while updates := self.step():
            outputs += updates
        return outputs


@pytest.fixture
def stage():
    stage = Stage()
    yield stage
    stage.run_until_idle()
    assert stage.scheduler.check_integrity() == ""
    assert stage.scheduler.stats().num_free_blocks == 64


def tokens_of(outputs, seq_id):
    return [token_id for output in outputs if output.seq_id == seq_id for token_id in output.token_ids]


def test_a_sequence_gets_its_tokens_one_step_at_a_time_until_its_limit(stage):
    stage.add(1, [1, 2, 3])
    first = stage.step()
    assert [(out.token_ids, out.finish, out.num_cached, out.started_at) for out in first] == [([4], None, 0, 50.0)]
    rest = stage.run_until_idle()
    assert [(out.token_ids, out.finish, out.num_cached, out.started_at) for out in rest] == [
        ([5], None, None, None),
        ([6], None, None, None),
        ([7], "length", None, None),
    ]


def test_a_stop_id_ends_a_sequence_and_is_reported(stage):
    stage.add(1, [29])
    outputs = stage.run_until_idle()
    assert (tokens_of(outputs, 1), outputs[-1].finish) == ([30, END], "stop")


def test_a_resumed_sequence_continues_after_its_output(stage):
    stage.add(1, [1], output_ids=[5, 6], max_tokens=4)
    outputs = stage.run_until_idle()
    assert (tokens_of(outputs, 1), outputs[-1].finish) == ([7, 8], "length")


def test_a_step_that_only_computes_a_prompt_emits_nothing(stage):
    stage.add(1, list(range(1, 10)) * 8, max_tokens=1)
    assert stage.step() == []
    assert tokens_of(stage.run_until_idle(), 1) == []
    outputs = [out for _ in range(3) for out in stage.step()]
    assert tokens_of(outputs, 1) == [10]


def test_a_later_prompt_finds_the_blocks_of_an_earlier_one(stage):
    prompt = list(range(1, 14))
    stage.add(1, prompt, max_tokens=1)
    stage.run_until_idle()
    stage.add(2, prompt, max_tokens=1)
    assert stage.step()[0].num_cached == 12


def test_logprobs_are_sent_only_for_sequences_that_request_them(stage):
    stage.add(1, [1], max_tokens=1, logprobs=LogprobOptions(enabled=True, top=2))
    stage.add(2, [1], max_tokens=1)
    with_logprobs, without = stage.step()
    assert with_logprobs.logprobs[0].top_ids[0] == 2
    assert without.logprobs is None


def test_an_abort_takes_effect_before_the_next_step(stage):
    stage.add(1, [1])
    stage.add(2, [11])
    stage.step()
    outputs = stage.step(AbortSequences([1, 99]))
    assert [(out.seq_id, out.finish) for out in outputs] == [(1, "aborted"), (2, None)]
    assert [chunk.sequence.seq_id for chunk in stage.runner.plans[-1].chunks] == [2]


def test_a_waiting_sequence_can_be_aborted_before_it_ever_ran(stage):
    stage.add(1, [1])
    (output,) = stage.step(AbortSequences([1]))
    assert (output.finish, output.num_cached, output.started_at) == ("aborted", None, None)


def test_a_row_of_nan_fails_its_sequence_alone(stage):
    stage.runner.broken = {2}
    stage.add(1, [1])
    stage.add(2, [11])
    outputs = stage.run_until_idle()
    assert [(out.token_ids, out.finish) for out in outputs if out.seq_id == 1] == [([2], None), ([], "failed")]
    assert tokens_of(outputs, 2) == [12, 13, 14, 15]


def test_a_step_that_raises_fails_its_sequences_only(stage):
    stage.runner.fatal = {12}
    stage.add(1, [1], max_tokens=9)
    stage.add(2, [11], max_tokens=9)
    outputs = stage.run_until_idle()
    assert {out.seq_id: out.finish for out in outputs if out.finish} == {1: "failed", 2: "failed"}
    stage.add(3, [1], max_tokens=2)
    assert tokens_of(stage.run_until_idle(), 3) == [2, 3]


def test_a_step_that_runs_out_of_memory_fails_its_sequences_alone(stage):
    stage.runner.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    stage.runner.fatal = {12}
    stage.add(1, [11])
    assert [out.finish for out in stage.run_until_idle()] == [None, "failed"]
    stage.add(2, [1], max_tokens=2)
    assert tokens_of(stage.run_until_idle(), 2) == [2, 3]


def test_a_step_that_loses_the_device_ends_the_core_and_no_sequence():
    """Such a core failed every further step and looked healthy. Its sequences now continue in the next core."""
    stage = Stage()
    stage.runner.error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    stage.runner.fatal = {12}
    stage.add(1, [11])
    assert tokens_of(stage.step(), 1) == [12]
    with pytest.raises(EngineFailure, match="the device has failed"):
        stage.step()
    assert stage.emitted() == []


@pytest.mark.parametrize(("prompt_ids", "max_tokens"), [([], 4), ([1] * 1000, 4), ([1], 0)])
def test_a_sequence_that_cannot_be_added_fails_alone(stage, prompt_ids, max_tokens):
    stage.add(1, [1], max_tokens=2)
    stage.add(2, prompt_ids, max_tokens=max_tokens)
    outputs = stage.run_until_idle()
    assert [out.finish for out in outputs if out.seq_id == 2] == ["failed"]
    assert tokens_of(outputs, 1) == [2, 3]


def test_statistics_are_answered_between_steps(stage):
    stage.add(1, [1])
    stage.step()
    answer = next(message for message in stage.step(QueryStats(check_integrity=True)) if isinstance(message, CoreStats))
    assert (answer.num_running, answer.num_steps, answer.integrity) == (1, 1, "")


def test_an_idle_core_blocks_on_its_channel_and_ends_at_shutdown():
    """The loop asks its channel to block exactly when the step before had nothing to do."""
    stage = Stage()
    script = [[_add_one(stage)], [], [], [], [Shutdown()]]
    asked = []

    class Channel(QueueChannel):
        def receive(self, block):
            asked.append(block)
            return script.pop(0)

    stage.core._channel = Channel()
    stage.core.run()
    assert asked == [True, False, False, True, True]


def _add_one(stage):
    stage.add(1, [1], max_tokens=2)
    try:
        return stage.channel.inbox.get_nowait()
    except queue.Empty as error:
        raise AssertionError from error


def test_a_core_announces_its_steps_if_requested(stage):
    stage.add(1, [1], max_tokens=2)
    announced, output = stage.step(AnnounceSteps())
    assert (announced, output.token_ids) == (StepStarted([1]), [2])


def test_a_turn_of_the_loop_is_measured_and_nothing_between_turns(stage, monkeypatch):
    now = [10.0]
    monkeypatch.setattr("engine.core.loop.monotonic", lambda: now[0])
    assert stage.core.turn_s == 0.0
    assert stage.core._turn([])
    now[0] = 17.0
    assert stage.core.turn_s == 7.0
    seen = []

    def receive(block):
        seen.append(stage.core.turn_s)
        return [] if len(seen) == 1 else [Shutdown()]

    with monkeypatch.context() as patch:
        patch.setattr(stage.channel, "receive", receive)
        stage.core.run()
    assert seen == [7.0, 0.0]


class ScriptedBudget:
    """A budget that changes the tokens of a step after the second one."""

    max_num_batched_tokens = prefill_only_token_budget = 48
    cut_step_tokens = mixed_step_tokens = 0

    def __init__(self):
        self.num_begun = self.num_ended = 0

    def begin(self):
        self.num_begun += 1

    def end(self, plan, earlier_s):
        self.num_ended += 1
        return self.num_ended == 2


def test_a_changed_token_budget_resizes_the_steps(stage):
    stage.core = make_core(
        stage.scheduler, stage.runner, Sampler(VOCAB_SIZE, "cpu"), stage.channel, token_budget=ScriptedBudget()
    )
    stage.add(1, list(range(1, 10)) * 20, max_tokens=1)
    for _ in range(4):
        stage.step()
    assert [plan.chunks[0].num_tokens for plan in stage.runner.plans] == [32, 32, 48, 48]
