"""What happens daily happens, or the worker says that it does not."""

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
    """Exit codes with which the worker was told to leave."""
    codes: list[int] = []
    monkeypatch.setattr(maintenance, "worker_leave", codes.append)
    settings.CELERY_BEAT_SCHEDULE_FILENAME = str(tmp_path / "data" / "run" / "beat-schedule")
    return codes


def beat_of(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], None]) -> Beat:
    """A beat whose turns are these, one after the other."""
    todo = list(acts)
    service = SimpleNamespace(start=lambda: todo.pop(0)(), stop=lambda: None)
    monkeypatch.setattr(maintenance, "BeatService", lambda app, max_interval: service)
    return Beat(SimpleNamespace(set_current=lambda: None))


def fail(error: Exception) -> None:
    raise error


def test_the_folder_of_the_schedule_is_made_wherever_the_worker_starts(left, monkeypatch, settings):
    """On several machines nothing made it: beat died in its thread, the worker said `ready`, and nothing was ever deleted."""
    beat = beat_of(monkeypatch, lambda: beat.close())
    beat.join = lambda timeout_s: None
    beat.run()
    assert Path(settings.CELERY_BEAT_SCHEDULE_FILENAME).parent.is_dir()
    assert left == []


def test_a_beat_that_cannot_go_on_ends_its_worker(left, monkeypatch):
    beat_of(monkeypatch, lambda: fail(RuntimeError("a defect"))).run()
    assert left == [1]


def test_a_full_disk_is_waited_for(left, monkeypatch):
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
