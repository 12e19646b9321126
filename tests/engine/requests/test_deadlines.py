"""Runs are reported when their deadlines pass, not at the next heartbeat."""

import queue
import time

import pytest

from engine.api import Completed, Delta, Outcome, StopRules
from engine.messages import AbortSequences
from engine.requests.served_runs import Deadlines
from tests.engine.stage import output, payloads


@pytest.fixture
def reported():
    return queue.SimpleQueue()


@pytest.fixture
def deadlines(reported):
    made = Deadlines(time.time, reported.put)
    yield made
    made.close()


def test_runs_are_reported_in_the_order_of_their_deadlines(deadlines, reported):
    now = time.time()
    for run_id, after_s in (("late", 3600.0), ("second", 0.02), ("first", 0.01), ("past", -5.0)):
        deadlines.add(run_id, now + after_s)
    heard = []
    while len(heard) < 3:
        heard += reported.get(timeout=20)
    assert heard == ["past", "first", "second"]
    assert time.time() >= now + 0.02
    assert reported.empty()


def test_no_deadline_is_reported_after_close(reported):
    deadlines = Deadlines(time.time, reported.put)
    deadlines.add("run", time.time() + 3600)
    deadlines.close()
    deadlines.close()
    deadlines.add("other", 0.0)
    assert reported.empty()


def test_an_error_at_one_deadline_does_not_stop_later_deadlines(reported):
    def end(run_ids):
        reported.put(run_ids)
        if run_ids == ["broken"]:
            raise OSError("nobody listens")

    deadlines = Deadlines(time.time, end)
    deadlines.add("broken", 0.0)
    assert reported.get(timeout=20) == ["broken"]
    deadlines.add("next", 0.0)
    assert reported.get(timeout=20) == ["next"]
    deadlines.close()


def test_a_run_ends_at_its_deadline_while_the_core_is_silent(make_stage):
    stage = make_stage()
    stage.core.answers_aborts = True
    stage.engine._deadlines._clock = stage.engine._runs._clock = time.time
    stage.submit("late", deadline_at=time.time() + 0.02)
    stage.submit("over", deadline_at=1.0)
    stage.submit("long", deadline_at=time.time() + 3600)
    ends = {}
    while len(ends) < 2:
        ends |= {run_id: events[-1].payload for run_id, events in stage.publication().items() if events[-1].is_terminal}
    assert {run_id: (type(end), end.outcome) for run_id, end in ends.items()} == {
        "late": (Completed, Outcome.TIMED_OUT),
        "over": (Completed, Outcome.TIMED_OUT),
    }
    assert [run.run_id for run in stage.engine._runs] == ["long"]


def test_a_run_ends_at_its_deadline_while_the_core_hangs_in_a_step(stage):
    stage.submit(deadline_at=150.0, stop=StopRules(stop=("never",)))
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"ab", num_cached=2))
    while not isinstance(stage.publication()["run"][-1].payload, Delta):
        continue
    stage.now = 151.0
    stage.engine._runs.end_due(["run"])
    (end,) = stage.publication()["run"]
    assert (end.start, end.payload.outcome) == (3, Outcome.TIMED_OUT)
    assert (end.payload.usage.completion_tokens, end.payload.usage.cached_tokens) == (2, 2)
    assert stage.core.hear(AbortSequences).seq_ids == [sequence.seq_id]
    stage.core.say(output(sequence, b"c"), output(sequence, finish="aborted"))
    stage.submit("next")
    assert list(stage.publication()) == ["next"], "what the core says too late is nobody's"


def test_a_run_that_ended_before_its_deadline_is_left_alone(stage):
    stage.core.answers_aborts = True
    stage.submit(deadline_at=1e9)
    (sequence,) = stage.core.hear_sequences()
    stage.core.say(output(sequence, b"a", "length"))
    assert payloads(stage.events_to_end())[-1].outcome is Outcome.FINISHED
    stage.engine._runs.end_due(["run", "unknown"])
    assert stage.has_no_publication()
