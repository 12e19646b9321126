"""The runs of a worker: live ones, recently ended ones, and those that another worker has taken over.

The engine's thread adds events and claiming threads add runs; everything else happens on the publisher's loop. The
table does not know Valkey.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from chat.relay.worker.live_run import LiveRun
from engine.api import Event, Outcome

logger = logging.getLogger(__name__)


class EventBatch(Protocol):
    """New events of one run (engine.engine.RunEvents)."""

    @property
    def run_id(self) -> str: ...
    @property
    def events(self) -> tuple[Event, ...]: ...


class RunTable:
    """A worker's runs by run id. `abort(run_id, outcome)` ends a run in the engine."""

    def __init__(self, abort: Callable[[str, Outcome], None]) -> None:
        self.live: dict[str, LiveRun] = {}
        self.ended: dict[str, LiveRun] = {}
        """Recently ended runs, which can be written again if Valkey loses them."""
        self.abort = abort
        self._dropped: dict[str, asyncio.Event] = {}
        self._dirty: dict[str, LiveRun] = {}
        self._lock = threading.Lock()

    def add_events(self, batch: Iterable[EventBatch]) -> tuple[bool, list[asyncio.Event]]:
        """Add events for the next flush, from any thread. Events of dropped runs are ignored.

        Return whether any event is urgent, and the asyncio events to set on the loop because the engine has ended
        dropped runs.
        """
        is_urgent, let_go = False, []
        with self._lock:
            for update in batch:
                run = self.live.get(update.run_id)
                if run is not None:
                    is_urgent = run.add(update.events) or is_urgent
                    self._dirty[update.run_id] = run
                elif update.run_id in self._dropped and update.events[-1].is_terminal:
                    let_go.append(self._dropped.pop(update.run_id))
        return is_urgent, let_go

    def take_dirty(self) -> list[LiveRun]:
        """Return the runs with events since the last call."""
        with self._lock:
            runs, self._dirty = list(self._dirty.values()), {}
        return runs

    def put(self, run: LiveRun) -> None:
        """Add a claimed run, from any thread."""
        with self._lock:
            self.ended.pop(run.run_id, None)
            self.live[run.run_id] = run

    def settle(self, run: LiveRun, now: float) -> None:
        """Move a run whose end is in Valkey to the ended ones."""
        run.ended_at = now
        with self._lock:
            self.live.pop(run.run_id, None)
            self.ended[run.run_id] = run

    def drop(self, run: LiveRun) -> None:
        """Drop a run that another worker has taken over and abort it locally.

        Publish nothing: the new owner reports the outcome.
        """
        with self._lock:
            self._dirty.pop(run.run_id, None)
            self.ended.pop(run.run_id, None)
            if self.live.pop(run.run_id, None) is None:
                return
            if run.completion is None:
                self._dropped[run.run_id] = asyncio.Event()
        logger.info("run %s belongs to another worker now", run.run_id)
        self.abort(run.run_id, Outcome.STOPPED)

    def being_let_go(self, run_id: str) -> asyncio.Event | None:
        """Return the asyncio event that is set once the engine ends a dropped run; None if it holds no such run."""
        return self._dropped.get(run_id)

    def forget_ended(self, before: float) -> None:
        """Forget the runs whose end was settled before that time."""
        for run in [run for run in list(self.ended.values()) if run.ended_at is not None and run.ended_at < before]:
            self.ended.pop(run.run_id, None)
