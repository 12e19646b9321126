"""The death of the core, and the end of the engine: every run ends, once, or goes on in the next core."""

import threading

import pytest

from engine.api import (
    Admitted,
    Delta,
    ErrorCode,
    Failed,
    Outcome,
    SamplingParams,
    Usage,
)
from engine.api.errors import EngineUnavailable
from engine.core_life import MAX_RESTARTS
from engine.messages import CoreFailed
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import output, payloads


def test_a_run_goes_on_in_the_next_core_without_gap_or_repeat(make_stage):
    """The new core counts as alive at once: with the old one's last heartbeat the worker looked dead after a long load."""
    second = ScriptedCore()
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit(num_choices=2, sampling=SamplingParams(seed=5))
    first_choice, second_choice = stage.core.hear_sequences(2)
    stage.core.say(output(first_choice, b"a", num_cached=0), output(second_choice, b"x", "length"))
    stage.core.die()
    stage.now = 150.0  # as long as the second core takes to load
    second.say(message=READY)
    (again,) = second.hear_sequences()
    assert stage.engine.heartbeat_at == 150.0
    assert (again.prompt_ids, again.output_ids) == (first_choice.prompt_ids, [*b"a"])
    assert (again.sampling.seed, again.max_tokens) == (5, first_choice.max_tokens)
    second.say(output(again, b"b", "length", num_cached=16))
    events = payloads(stage.events_to_end())
    assert [event.text for event in events if isinstance(event, Delta) and event.choice == 0] == ["a", "b"]
    assert events[-1].usage == Usage(len(again.prompt_ids), 0, 3)


def test_a_run_that_was_being_ended_is_ended_by_the_death_of_the_core(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit()
    stage.core.hear_sequences()
    stage.engine.abort("run", Outcome.STOPPED)
    stage.core.die()
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.STOPPED
    stage.submit("next")
    assert second.hear_sequences()


def test_a_core_that_reports_its_failure_is_replaced(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit()
    stage.core.hear_sequences()
    stage.core.say(message=CoreFailed("broken", "detail"))
    assert second.hear_sequences()


def test_a_core_that_dies_too_often_fails_its_runs_and_the_engine(make_stage):
    cores = [ScriptedCore(READY) for _ in range(MAX_RESTARTS + 1)]
    stage = make_stage(*cores)
    stage.engine._starter._closing.wait = lambda delay_s: False  # no back-off
    stage.submit()
    for core in cores:
        core.hear_sequences()
        core.die()
    events = payloads(stage.events_to_end())
    assert (events[-1].code, events[-1].outcome) == (ErrorCode.ENGINE_ERROR, Outcome.FAILED)
    with pytest.raises(EngineUnavailable):
        stage.submit("next")
    assert stage.engine.stats().state == "failed"


def test_closing_ends_a_core_that_is_still_loading_and_the_runs_that_wait_for_it(make_stage):
    """Such a core was left alone: it loaded on behind a closed engine, and its runs never ended."""
    loading, is_awaited = ScriptedCore(), threading.Event()
    receive = loading.receive
    loading.receive = lambda: is_awaited.set() or receive()
    stage = make_stage(ScriptedCore(READY), loading)
    stage.submit()
    stage.core.hear_sequences()
    stage.engine.abort("run", Outcome.STOPPED)
    stage.core.die()
    assert is_awaited.wait(20)
    stage.engine._changed.wait_for = lambda predicate, timeout: predicate()  # no drain
    stage.engine.close()
    assert loading._is_dead
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.STOPPED
    assert not stage.engine._receiver.is_alive()


def test_a_run_that_is_being_admitted_while_the_last_core_dies_ends_after_its_admission(make_stage, monkeypatch):
    """Its end was published first: the receiver did not wait for the thread that publishes the admission."""
    monkeypatch.setattr("engine.core_life.MAX_RESTARTS", 0)
    stage = make_stage()
    publish = stage.engine._publish

    def publish_when_the_core_is_gone(news):
        if isinstance(news[0].events[0].payload, Admitted):
            stage.core.die()
            stage.engine._receiver.join(20)
        publish(news)

    stage.engine._publish = publish_when_the_core_is_gone
    stage.submit()
    assert [type(payload) for payload in payloads(stage.events_to_end())] == [Admitted, Failed]
    assert stage.engine.stats().num_runs == 0


def test_closing_waits_for_live_runs_up_to_its_limit(make_stage):
    stage = make_stage()
    stage.submit()
    (sequence,) = stage.core.hear_sequences()
    closer = threading.Thread(target=stage.engine.close, kwargs={"drain_s": 60.0})
    closer.start()
    stage.core.say(output(sequence, b"a", "length"))
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.FINISHED
    closer.join(20)
    assert stage.engine.stats().state == "closed"


def test_what_is_left_at_the_end_of_draining_is_lost_and_says_so(stage):
    stage.submit()
    stage.core.hear_sequences()
    closer = threading.Thread(target=stage.engine.close)
    closer.start()
    stage.core.answer_abort()
    failed = payloads(stage.events_to_end())[-1]
    assert (failed.code, failed.outcome) == (ErrorCode.WORKER_LOST, Outcome.WORKER_LOST)
    closer.join(20)
    with pytest.raises(EngineUnavailable):
        stage.submit("next")
