"""What a worker keeps of a run it serves: news that wait for the next flush, and every entry written so far.

Entries stay in memory until shortly after the end, so that what a restarted Valkey has lost can be written again. Their
number is bounded by the run's token limit. Written by the engine's thread (`add`) and the publisher's loop (the rest).
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
    """A packed piece of the log; `position` is the last one that it covers."""

    position: int
    payload: bytes


@dataclass(slots=True, eq=False)
class LiveRun:
    """One claimed run. `is_logged`: the log exists, so a missing one means that Valkey lost it; `is_forgotten`: so it was."""

    claim: Claim
    worker_id: str
    is_logged: bool = False
    is_forgotten: bool = False
    has_spoken: bool = False
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
        """The end is in Valkey."""
        return self.ended_at is not None

    def add(self, events: tuple[Event, ...]) -> bool:
        """Keep news for the next flush; true when they should not wait for a batch (first words, the end)."""
        with self._lock:
            self._pending.extend(events)
        is_urgent = not self.has_spoken or events[-1].is_terminal
        self.has_spoken = self.has_spoken or not isinstance(events[-1].payload, Admitted)
        return is_urgent

    def cut(self, now: float) -> Entry | None:
        """Make one entry of all news; with a terminal event among them, also the run's ending."""
        with self._lock:
            news, self._pending = self._pending, []
        if not news or self.completion is not None:
            return None
        events = join_deltas(news)
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
