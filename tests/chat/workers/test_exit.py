"""A worker process ends in bounded time, with any of its threads waiting."""

import queue

import pytest
from celery.signals import worker_shutting_down
from celery.worker import state

from chat.workers import exit as worker_exit


@pytest.fixture
def ended(monkeypatch):
    """Return the exit codes with which this process would have ended."""
    codes = queue.SimpleQueue()
    later = worker_exit.end_later
    monkeypatch.setattr(worker_exit, "end_later", lambda code, patience_s: later(code, patience_s, end=codes.put))
    return codes


def test_worker_leave_stops_celery_with_the_exit_code(ended, monkeypatch):
    monkeypatch.setattr(state, "should_stop", None)
    worker_exit.worker_leave(1, patience_s=0.0)
    assert state.should_stop == 1
    assert ended.get(timeout=10) == 1, "the process ends even if Celery does not stop"


def test_a_stop_signal_ends_the_process_within_its_bound(ended):
    """While Valkey was away, the maintenance worker ignored SIGTERM for three minutes and was then killed."""
    worker_exit.stop_is_bounded(0.0)
    try:
        worker_shutting_down.send(sender="maintenance@here", sig="TERM", how="Warm", exitcode=0)
        assert ended.get(timeout=10) == 0
    finally:
        worker_shutting_down.disconnect(dispatch_uid="bounded stop")
