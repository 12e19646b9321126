"""A thread that reports runs at their deadlines: the heartbeats, at which the engine also looks, are a second apart."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
"""After this time the thread reads the clock again, which may have been set."""


class Deadlines:
    """The deadlines of runs. A thread, which the first one starts, calls `on_due(run_ids)`, also of ended runs."""

    def __init__(self, clock: Callable[[], float], on_due: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._waiting: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def add(self, run_id: str, deadline_at: float) -> None:
        """Add a deadline (unix seconds). Thread-safe."""
        with self._changed:
            heapq.heappush(self._waiting, (deadline_at, run_id))
            if self._waiting[0][1] == run_id:
                self._changed.notify()
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._watch, name="engine-deadlines", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Report nothing more. Idempotent."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while due := self._next_due():
            try:
                self._on_due(due)
            except Exception:
                logger.exception("%d runs could not be ended at their deadlines", len(due))

    def _next_due(self) -> list[str]:
        """Wait for the next runs that are due; return none after `close`."""
        with self._changed:
            while not self._is_closing:
                now = self._clock()
                due = []
                while self._waiting and self._waiting[0][0] <= now:
                    due.append(heapq.heappop(self._waiting)[1])
                if due:
                    return due
                self._changed.wait(min(self._waiting[0][0] - now, LONGEST_WAIT_S) if self._waiting else None)
        return []
