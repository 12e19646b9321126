"""The step loop of an encoder: what it emits, and what becomes of a step that fails."""

import pytest
import torch

from engine.api import EmbedOptions, EngineFailure, LogprobOptions, SamplingParams, StopRules
from engine.core.encoder_loop import EncoderCore
from engine.core.turns import Turns
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
from engine.scheduling.whole_prompts import WholePrompts
from tests.engine.in_process import QueueChannel


class ScriptedRunner:
    """Answers each prompt with its length; raises `errors` first."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def results(self, sequences):
        if self.errors:
            raise self.errors.pop(0)
        return [[float(len(sequence.prompt_ids))] for sequence in sequences]


def prompt(seq_id, length):
    options = SamplingParams(seed=0), StopRules(), LogprobOptions()
    return AddSequence(seq_id, [1] * length, [], *options, [], 1, cache_root=b"", embed=EmbedOptions())


def make(*errors, **options):
    channel = QueueChannel()
    return EncoderCore(
        WholePrompts(10, 4, 100), ScriptedRunner(*errors), channel, clock=lambda: 7.0, **options
    ), channel


def run(core, channel, *messages):
    """Let the core handle messages until it has nothing to do; return what it sent."""
    assert core.handle_messages(list(messages))
    while core.step():
        pass
    sent = []
    while not channel.outbox.empty():
        sent.append(channel.outbox.get())
    return sent


def test_each_prompt_has_one_output_with_the_start_of_its_step():
    core, channel = make()
    sent = run(core, channel, prompt(1, 8), prompt(2, 2), prompt(3, 5))
    assert [[(one.seq_id, one.vector, one.finish) for one in result.outputs] for result in sent] == [
        [(1, [8.0], "embedded"), (2, [2.0], "embedded")],
        [(3, [5.0], "embedded")],
    ]
    assert {(one.started_at, one.num_cached) for result in sent for one in result.outputs} == {(7.0, 0)}


def test_a_failed_step_ends_its_prompts_and_the_loop_goes_on():
    core, channel = make(RuntimeError("not today"))
    first, second = run(core, channel, prompt(1, 8), prompt(2, 8))
    assert [(one.seq_id, one.finish) for one in first.outputs] == [(1, "failed")]
    assert [(one.seq_id, one.finish) for one in second.outputs] == [(2, "embedded")]


def test_a_lost_device_ends_the_core():
    core, channel = make(torch.AcceleratorError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(EngineFailure):
        run(core, channel, prompt(1, 8))


def test_aborted_prompts_are_answered_and_unknown_ones_are_not():
    core, channel = make()
    core.handle_messages([prompt(1, 3), AbortSequences([1, 9])])
    (result,) = run(core, channel)
    assert [(one.seq_id, one.finish) for one in result.outputs] == [(1, "aborted")]


def test_an_empty_prompt_fails_alone():
    core, channel = make()
    failed, result = run(core, channel, prompt(1, 0), prompt(2, 3))
    assert [(one.seq_id, one.finish) for one in failed.outputs] == [(1, "failed")]
    assert [one.seq_id for one in result.outputs] == [2]


def test_steps_are_announced_once_asked_and_counted():
    core, channel = make()
    sent = run(core, channel, AnnounceSteps(), prompt(1, 3), prompt(2, 9))
    assert [type(message) for message in sent] == [StepStarted, StepResult] * 2
    assert [message.seq_ids for message in sent[::2]] == [[1], [2]]
    (stats,) = run(core, channel, QueryStats(check_integrity=True))
    assert isinstance(stats, CoreStats)
    assert (stats.num_steps, stats.num_prompt_tokens, stats.num_blocks, stats.integrity) == (2, 12, 0, "")


def test_the_core_shares_processors_while_it_is_busy(tmp_path, monkeypatch):
    shares = []
    turns = Turns(tmp_path / "turns", 4, shares.append, lambda: 0.0)
    other = Turns(tmp_path / "turns", 4, lambda num_threads: None, lambda: 0.0)
    core, channel = make(turns=turns)
    other.begin()
    channel.inbox.put(prompt(1, 3))
    monkeypatch.setattr(ScriptedRunner, "results", lambda runner, sequences: channel.inbox.put(Shutdown()) or [[1.0]])
    core.run()
    assert shares == [2]
    other.close()
