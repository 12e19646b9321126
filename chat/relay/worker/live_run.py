"""The worker's state of one run: events that wait for the next flush, and every entry written so far.

Entries stay in memory until shortly after the end, so that a log that Valkey has lost can be written again. Their
number is bounded by the run's token limit. The engine's thread calls `add`, the publisher's loop the rest.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from chat.relay.state.codec import join_deltas, pack_events
from chat.relay.state.keys import model_slug
from chat.relay.state.records import terminal_record
from chat.relay.state.runs import Claim, RunCompletion, entry_id
from engine.api import Admitted, ChoiceFinished, Completed, Event, Failed, Rejected


@dataclass(frozen=True, slots=True)
class Entry:
    """A packed log entry. `position` is the last one that it covers."""

    position: int
    payload: bytes


@dataclass(slots=True, eq=False)
class LiveRun:
    """A run that this worker has claimed."""

    claim: Claim
    worker_id: str
    is_logged: bool = False
    """The log exists, so that a missing one means that Valkey has lost it."""
    is_forgotten: bool = False
    """Valkey has lost the run."""
    has_output: bool = False
    """An event after Admitted has been added."""
    entries: list[Entry] = field(default_factory=list)
    completion: RunCompletion | None = None
    ended_at: float | None = None
    _pending: list[Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _finish_reason: str = ""

    @property
    def run_id(self) -> str:
        return self.claim.run_id

    @property
    def is_settled(self) -> bool:
        """True once the end is in Valkey."""
        return self.ended_at is not None

    def add(self, events: tuple[Event, ...]) -> bool:
        """Add events for the next flush.

        Return True if they must not wait for a batch: the first output, and the end.
        """
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
            used_tokens=record["prompt_tokens"] + record["completion_tokens"],
            caller=claim.caller,
            slug=model_slug(claim.request.model),
            worker_id=self.worker_id,
            tokens_per_minute=claim.tokens_per_minute,
        )
