"""After the death of a core every run ends once or continues in the next core."""

import queue
import threading

import pytest

from engine.api import (
    Admitted,
    BeamOptions,
    Delta,
    ErrorCode,
    Failed,
    Outcome,
    SamplingParams,
    StopRules,
    Usage,
)
from engine.api.errors import EngineUnavailable
from engine.core.supervisor import MAX_RESTARTS
from engine.messages import AbortSequences, CoreFailed, Heartbeat, SampledLogprobs, StepStarted
from tests.engine.scripted_core import READY, ScriptedCore
from tests.engine.stage import output, payloads


def test_a_run_continues_in_the_next_core_without_gap_or_repeat(make_stage):
    """The new core counts as alive at once: by the old heartbeat the worker looked dead after a long load."""
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


def test_an_aborting_run_ends_as_stopped_when_its_core_dies(make_stage):
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
    stage.engine._restarter._closing.wait = lambda delay_s: False  # no back-off
    stage.submit()
    for core in cores:
        core.hear_sequences()
        core.die()
    events = payloads(stage.events_to_end())
    assert (events[-1].code, events[-1].outcome) == (ErrorCode.ENGINE_ERROR, Outcome.FAILED)
    with pytest.raises(EngineUnavailable):
        stage.submit("next")
    assert stage.engine.stats().state == "failed"


def test_on_restarted_is_called_once_a_new_core_is_ready(make_stage):
    """Its worker thereby counts as ready at once."""
    first, second = ScriptedCore(READY), ScriptedCore(READY)
    stage = make_stage(first, second)
    seen = queue.Queue()
    stage.engine._on_restarted = lambda: seen.put(stage.engine.state)
    first.die()
    assert seen.get(timeout=20) == "ready"


def test_on_failed_is_called_before_the_remaining_runs_fail(make_stage):
    """Its worker can thereby hand its runs to another one."""
    cores = [ScriptedCore(READY) for _ in range(MAX_RESTARTS + 1)]
    stage = make_stage(*cores)
    stage.engine._restarter._closing.wait = lambda delay_s: False  # no back-off
    seen = []
    stage.engine._on_failed = lambda: seen.append((stage.engine.state, stage.engine.stats().num_runs))
    stage.submit()
    for core in cores:
        core.hear_sequences()
        core.die()
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.FAILED
    assert seen == [("failed", 1)]


def test_close_ends_a_loading_core_and_its_waiting_runs(make_stage):
    """Such a core continued to load behind a closed engine, and its runs never ended."""
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


def test_a_run_admitted_while_the_last_core_dies_ends_after_its_admission(make_stage, monkeypatch):
    """Its end was published first, as the receiver did not wait for the admitting thread."""
    monkeypatch.setattr("engine.core.supervisor.MAX_RESTARTS", 0)
    stage = make_stage()
    publish = stage.engine._runs.publish

    def publish_when_the_core_is_gone(updates):
        if isinstance(updates[0].events[0].payload, Admitted):
            stage.core.die()
            stage.engine._receiver.join(20)
        publish(updates)

    stage.engine._runs.publish = publish_when_the_core_is_gone
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


def test_runs_left_at_the_end_of_draining_end_as_lost(stage):
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


@pytest.mark.slow
def test_a_core_with_a_hanging_step_is_replaced_and_the_run_continues(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second, step_timeout_s=60.0)
    stage.submit()
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"a"))
    stage.core.say(message=Heartbeat(59.0))
    stage.core.say(output(sequence, b"b"))
    stage.core.say(message=Heartbeat(61.0))
    (again,) = second.hear_sequences()
    assert again.output_ids == [*b"ab"]
    assert stage.engine.stats().num_restarts == 1


def test_steps_have_no_time_limit_if_none_is_set(make_stage):
    stage = make_stage(step_timeout_s=0.0)
    stage.submit(deadline_at=150.0)
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(message=Heartbeat(1e6))
    stage.core.say(output(sequence, b"a", "length"))
    assert payloads(stage.events_to_end())[-1].outcome == Outcome.FINISHED


def test_a_run_in_the_last_step_of_two_dead_cores_fails_and_others_continue(make_stage):
    """The engine gave up after the third restart, and all runs failed."""
    cores = [ScriptedCore(READY) for _ in range(3)]
    stage = make_stage(*cores)
    stage.engine._restarter._closing.wait = lambda delay_s: False  # no back-off
    for run_id in ("poison", "victim", "waiting"):
        stage.submit(run_id)
        stage.publication()
    stage.core.hear_sequences(3)
    stage.core.die()
    poison, victim, waiting = cores[1].hear_sequences(3)
    assert cores[1].announces_steps
    cores[1].say(message=StepStarted([poison.seq_id, victim.seq_id]))
    cores[1].say(output(victim, b"a"), output(poison, b"b"))
    cores[1].say(message=StepStarted([poison.seq_id]))
    cores[1].die()
    assert payloads(stage.events_to_end("poison"))[-1].outcome == Outcome.FAILED
    survivors = cores[2].hear_sequences(2)
    assert [sequence.seq_id for sequence in survivors] == [victim.seq_id, waiting.seq_id]
    cores[2].say(*(output(sequence, b"z", "length") for sequence in survivors))
    assert payloads(stage.events_to_end("victim"))[-1].outcome == Outcome.FINISHED


def test_a_run_in_the_last_step_of_one_dead_core_continues(make_stage):
    cores = [ScriptedCore(READY) for _ in range(3)]
    stage = make_stage(*cores)
    stage.engine._restarter._closing.wait = lambda delay_s: False  # no back-off
    stage.submit("old")
    stage.core.hear_sequences()
    stage.core.die()
    (old,) = cores[1].hear_sequences()
    stage.submit("new")
    (new,) = cores[1].hear_sequences()
    cores[1].say(message=StepStarted([new.seq_id]))
    cores[1].die()
    assert [sequence.seq_id for sequence in cores[2].hear_sequences(2)] == [old.seq_id, new.seq_id]


def test_deadlines_and_aborts_take_effect_while_a_core_loads(make_stage):
    """Both waited for the new core, which may take minutes to load."""
    loading = ScriptedCore()
    stage = make_stage(ScriptedCore(READY), loading)
    stage.submit("late", deadline_at=105.0)
    stage.submit("stopped")
    stage.submit("patient")
    stage.core.hear_sequences(3)
    stage.core.die()
    loading.say(message=Heartbeat())
    stage.engine.abort("stopped", Outcome.STOPPED)
    stage.now = 105.0
    loading.say(message=Heartbeat())
    ends = {}
    while len(ends) < 2:
        ends |= {run_id: events[-1].payload for run_id, events in stage.publication().items() if events[-1].is_terminal}
    assert {run_id: end.outcome for run_id, end in ends.items()} == {
        "late": Outcome.TIMED_OUT,
        "stopped": Outcome.STOPPED,
    }
    loading.say(message=READY)
    assert len(loading.hear_sequences()) == 1
    assert loading.has_heard_all()


def test_a_beam_search_repeats_its_round_in_the_next_core(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit(num_choices=2, beam=BeamOptions(), stop=StopRules(max_tokens=2))
    (first,) = stage.core.hear_sequences()
    assert (first.output_ids, first.max_tokens, first.scores_processed) == ([], 1, True)
    stage.core.say(alternatives(first, {97: -1.0, 98: -2.0}))
    left, right = stage.core.hear_sequences(2)
    assert [left.output_ids, right.output_ids] == [[97], [98]]
    stage.core.say(alternatives(left, {99: -1.0, 100: -5.0}))
    stage.core.die()
    (again,) = second.hear_sequences()
    assert (again.seq_id, again.output_ids) == (right.seq_id, [98])
    second.say(alternatives(again, {101: -0.5, 102: -9.0}))
    events = payloads(stage.events_to_end())
    assert [event.token_ids for event in events if isinstance(event, Delta)] == [(97, 99), (98, 101)]
    assert events[-1].usage.completion_tokens == 4


def alternatives(sequence, logprobs):
    """Return the core's output for one more token of a beam."""
    best = next(iter(logprobs))
    entry = SampledLogprobs(logprobs[best], list(logprobs), list(logprobs.values()))
    return output(sequence, [best], "length", logprobs=[entry])


def test_a_beam_search_can_be_aborted_between_two_rounds(make_stage):
    stage = make_stage()
    stage.submit(num_choices=2, beam=BeamOptions())
    (first,) = stage.core.hear_sequences()
    stage.core.say(alternatives(first, {97: -1.0, 98: -2.0}))
    left, right = stage.core.hear_sequences(2)
    stage.engine.abort("run", Outcome.STOPPED)
    assert stage.core.hear(AbortSequences).seq_ids == [left.seq_id, right.seq_id]
    stage.core.say(alternatives(left, {97: -1.0}), output(right, finish="aborted"))
    events = payloads(stage.events_to_end())
    assert (events[-1].outcome, events[-1].usage.completion_tokens) == (Outcome.STOPPED, 2)


def test_a_beam_search_fails_with_a_failed_step(stage):
    stage.submit("broken", num_choices=2, beam=BeamOptions())
    (first,) = stage.core.hear_sequences()
    stage.core.say(output(first, finish="failed"))
    assert payloads(stage.events_to_end("broken"))[-1].outcome == Outcome.FAILED


def test_best_of_answers_are_ranked_across_the_death_of_a_core(make_stage):
    second = ScriptedCore(READY)
    stage = make_stage(ScriptedCore(READY), second)
    stage.submit(best_of=2, stop=StopRules(max_tokens=2))
    bad, good = stage.core.hear_sequences(2)
    stage.core.say(
        output(bad, b"ab", "length", logprobs=[SampledLogprobs(-5.0)] * 2),
        output(good, b"x", logprobs=[SampledLogprobs(-1.0)]),
    )
    stage.core.die()
    (again,) = second.hear_sequences()
    second.say(output(again, b"y", "length", logprobs=[SampledLogprobs(-1.0)]))
    events = payloads(stage.events_to_end())
    assert [event.text for event in events if isinstance(event, Delta)] == ["x", "y"]
    assert events[-1].usage.completion_tokens == 4
