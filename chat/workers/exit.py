"""The bounded end of a worker: Celery cannot stop while one of its threads waits for an unavailable broker."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from celery.signals import worker_shutting_down
from celery.worker import state

logger = logging.getLogger(__name__)

LEAVE_S = 20.0


def worker_leave(code: int, *, patience_s: float = LEAVE_S) -> None:
    """Stop this worker as SIGTERM would, but with this exit code. For any thread; returns at once."""
    state.should_stop = code
    end_later(code, patience_s)


def stop_is_bounded(patience_s: float) -> None:
    """Make this process end within `patience_s` of a stop signal."""

    def on_shutting_down(exitcode: int, **_: object) -> None:
        end_later(exitcode, patience_s)

    worker_shutting_down.connect(on_shutting_down, weak=False, dispatch_uid="bounded stop")


def end_later(code: int, patience_s: float, *, end: Callable[[int], object] = os._exit) -> None:
    """End this process after `patience_s`, if it is still running."""

    def expire() -> None:
        logger.error("this worker did not stop within %.0f s; it is ended", patience_s)
        end(code)

    timer = threading.Timer(patience_s, expire)
    timer.daemon = True
    timer.start()
