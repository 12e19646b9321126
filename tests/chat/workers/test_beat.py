"""Beat sends the daily tasks, or ends its worker."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chat.workers import maintenance
from chat.workers.maintenance import Beat


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> list[int]:
    """Return the exit codes with which the worker was asked to stop."""
    codes: list[int] = []
    monkeypatch.setattr(maintenance, "worker_leave", codes.append)
    settings.CELERY_BEAT_SCHEDULE_FILENAME = str(tmp_path / "data" / "run" / "beat-schedule")
    return codes


def beat_of(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> Beat:
    """Return a beat that performs `acts`, one in each turn."""
    todo = list(acts)
    service = SimpleNamespace(start=lambda: todo.pop(0)(), stop=lambda: None)
    monkeypatch.setattr(maintenance, "BeatService", lambda app, max_interval: service)
    return Beat(SimpleNamespace(set_current=lambda: None))


def fail(error: Exception) -> None:
    raise error


def test_beat_creates_the_folder_of_its_schedule(left, monkeypatch, settings):
    """Without the folder, beat died in its thread while the worker was `ready`, and nothing was ever deleted."""
    beat = beat_of(monkeypatch, lambda: beat.close())
    beat.join = lambda timeout_s: None
    beat.run()
    assert Path(settings.CELERY_BEAT_SCHEDULE_FILENAME).parent.is_dir()
    assert left == []


def test_a_failed_beat_ends_its_worker(left, monkeypatch):
    beat_of(monkeypatch, lambda: fail(RuntimeError("a defect"))).run()
    assert left == [1]


def test_beat_waits_while_the_disk_is_full(left, monkeypatch):
    monkeypatch.setattr(maintenance, "BEAT_RETRY_S", 0.0)
    is_going_on = threading.Event()

    def go_on() -> None:
        is_going_on.set()
        beat.join = lambda timeout_s: None
        beat.close()

    beat = beat_of(monkeypatch, lambda: fail(OSError(errno.ENOSPC, "No space left on device")), go_on)
    beat.run()
    assert is_going_on.is_set()
    assert left == []
