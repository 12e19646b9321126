"""The runs of a worker: those that live, those that ended lately, and those that another attempt has taken.

The engine's thread hands in news, and threads that claim put runs; everything else belongs to the loop of the publisher.
Refuses to know Valkey.
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
    """`abort(run_id, outcome)` ends a run in the engine. `live`, `ended`: by run id; the latter are kept for a Valkey that forgets them."""

    def __init__(self, abort: Callable[[str, Outcome], None]) -> None:
        self.live: dict[str, LiveRun] = {}
        self.ended: dict[str, LiveRun] = {}
        self.abort = abort
        self._dropped: dict[str, asyncio.Event] = {}
        self._dirty: dict[str, LiveRun] = {}
        self._lock = threading.Lock()

    def add_events(self, batch: Iterable[EventBatch]) -> tuple[bool, list[asyncio.Event]]:
        """Keep news for the next flush; those of runs that are not ours any more are dropped. From any thread.

        Whether some of it is urgent, and what to set on the loop, as the engine has let go of dropped runs.
        """
        is_urgent, let_go = False, []
        with self._lock:
            for news in batch:
                run = self.live.get(news.run_id)
                if run is not None:
                    is_urgent = run.add(news.events) or is_urgent
                    self._dirty[news.run_id] = run
                elif news.run_id in self._dropped and news.events[-1].is_terminal:
                    let_go.append(self._dropped.pop(news.run_id))
        return is_urgent, let_go

    def take_dirty(self) -> list[LiveRun]:
        """Runs with news since the last call."""
        with self._lock:
            runs, self._dirty = list(self._dirty.values()), {}
        return runs

    def put(self, run: LiveRun) -> None:
        """A run that was claimed. From any thread."""
        with self._lock:
            self.ended.pop(run.run_id, None)
            self.live[run.run_id] = run

    def settle(self, run: LiveRun, now: float) -> None:
        """The end of the run is in Valkey."""
        run.ended_at = now
        with self._lock:
            self.live.pop(run.run_id, None)
            self.ended[run.run_id] = run

    def drop(self, run: LiveRun) -> None:
        """Forget a run that is not ours any more, and end it in the engine. Nobody is told: its new owner speaks."""
        with self._lock:
            self._dirty.pop(run.run_id, None)
            self.ended.pop(run.run_id, None)
            if self.live.pop(run.run_id, None) is None:
                return
            if run.completion is None:
                self._dropped[run.run_id] = asyncio.Event()
        logger.info("run %s is not ours any more", run.run_id)
        self.abort(run.run_id, Outcome.STOPPED)

    def being_let_go(self, run_id: str) -> asyncio.Event | None:
        """Set when the engine has let go of a dropped run; None where it has, or never had it."""
        return self._dropped.get(run_id)

    def forget_ended(self, before: float) -> None:
        """Those whose end was settled earlier."""
        for run in [run for run in list(self.ended.values()) if run.ended_at is not None and run.ended_at < before]:
            self.ended.pop(run.run_id, None)
