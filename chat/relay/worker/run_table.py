"""The runs of a worker: live ones, recently ended ones, and those that another worker has taken over.

Every entry of a run stays in memory until shortly after its end, so that a log that Valkey has lost can be written
again; the run's token limit bounds them. The engine's thread adds events, the publisher's loop does the rest.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from chat.relay.state.kept_texts import texts_packed
from chat.relay.state.keys import model_slug
from chat.relay.state.records import join_deltas, pack_events, terminal_record, unpack_events
from chat.relay.state.runs import Claim, RunCompletion, entry_id
from engine.api import Admitted, ChoiceFinished, Completed, Event, Failed, Outcome, Rejected

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """A packed log entry. `position` is the last one that it covers."""

    position: int
    payload: bytes


@dataclass(slots=True, eq=False)
class LiveRun:
    """A run that this worker has claimed: events that wait for the next flush, and every entry written so far."""

    claim: Claim
    worker_id: str
    is_logged: bool = False
    """The log exists, so that a missing one means that Valkey has lost it."""
    is_forgotten: bool = False
    """Valkey has lost the run."""
    has_output: bool = False
    entries: list[Entry] = field(default_factory=list)
    completion: RunCompletion | None = None
    ended_at: float | None = None
    """Set once the end is in Valkey."""
    _pending: list[Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finish_reason: str = ""

    @property
    def run_id(self) -> str:
        return self.claim.run_id

    def add(self, events: tuple[Event, ...]) -> bool:
        """Add events. Return True if they must not wait for a batch: the first output, and the end."""
        with self._lock:
            self._pending.extend(events)
        is_urgent = not self.has_output or events[-1].is_terminal
        self.has_output = self.has_output or not isinstance(events[-1].payload, Admitted)
        return is_urgent

    def cut(self, now: float) -> Entry | None:
        """Pack all pending events into one entry. A terminal event among them also sets `completion`."""
        with self._lock:
            pending, self._pending = self._pending, []
        if not pending or self.completion is not None:
            return None
        events = join_deltas(pending)
        last = events[-1]
        entry = Entry(last.start + last.count - 1, pack_events(events))
        self.entries.append(entry)
        for event in events:
            if isinstance(event.payload, ChoiceFinished) and event.payload.choice == 0:
                self._finish_reason = event.payload.reason.value
        if isinstance(last.payload, Completed | Failed | Rejected):
            self.completion = self._end(last.payload, entry, now)
        return entry

    def entry_name(self, entry: Entry) -> str:
        return entry_id(self.claim.attempt, entry.position)

    def _end(self, payload: Completed | Failed | Rejected, entry: Entry, now: float) -> RunCompletion:
        claim = self.claim
        record = terminal_record(
            claim.about,
            payload,
            run_id=claim.run_id,
            attempts=claim.attempt,
            worker=self.worker_id,
            ended_at=now,
            finish_reason=self._finish_reason,
        )
        return RunCompletion(
            run_id=claim.run_id,
            attempt=claim.attempt,
            position=entry.position,
            payload=entry.payload,
            record=record,
            slug=model_slug(claim.request.model),
            worker_id=self.worker_id,
            texts=self._texts(),
        )

    def _texts(self) -> bytes:
        """Return what was asked and answered, if the project keeps it. A failure must not keep the run from ending."""
        most = self.claim.about.get("text_bytes")
        if not most:
            return b""
        try:
            events = (event for entry in self.entries for event in unpack_events(entry.payload))
            return texts_packed(self.claim.request, events, most=most)
        except Exception:
            logger.exception("texts of run %s are not kept", self.run_id)
            return b""


class EventBatch(Protocol):
    """New events of one run: engine.engine.RunEvents."""

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

        Return whether any is urgent, and the asyncio events to set as the engine has ended dropped runs.
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
        with self._lock:
            runs, self._dirty = list(self._dirty.values()), {}
        return runs

    def put(self, run: LiveRun) -> None:
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
        """Drop a run that another worker has taken over and abort it locally: the new owner reports the outcome."""
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
        for run in list(self.ended.values()):
            if run.ended_at is not None and run.ended_at < before:
                self.ended.pop(run.run_id, None)
