"""A worker process ends when it is told to, whatever its threads wait for."""

import queue

import pytest
from celery.signals import worker_shutting_down
from celery.worker import state

from chat.workers import exit as worker_exit


@pytest.fixture
def ended(monkeypatch):
    """Exit codes of this process, were it ended for real."""
    codes = queue.SimpleQueue()
    later = worker_exit.end_later
    monkeypatch.setattr(worker_exit, "end_later", lambda code, patience_s: later(code, patience_s, end=codes.put))
    return codes


def test_leaving_stops_celery_with_a_code_that_has_the_worker_started_again(ended, monkeypatch):
    monkeypatch.setattr(state, "should_stop", None)
    worker_exit.worker_leave(1, patience_s=0.0)
    assert state.should_stop == 1
    assert ended.get(timeout=10) == 1, "and where Celery does not come to it, the process ends all the same"


def test_a_worker_that_was_told_to_stop_ends_in_its_time(ended):
    """The maintenance worker ignored SIGTERM as long as Valkey was away: three minutes, then it was killed."""
    worker_exit.stop_is_bounded(0.0)
    try:
        worker_shutting_down.send(sender="maintenance@here", sig="TERM", how="Warm", exitcode=0)
        assert ended.get(timeout=10) == 0
    finally:
        worker_shutting_down.disconnect(dispatch_uid="bounded stop")
