"""RunReader: the events of one run in the order of their positions, even if messages are lost.

An event is accepted iff `start == next`: a smaller start is a duplicate, a larger one a gap, which the log fills. The
dispatcher offers entries, from the layer or, if a reader receives nothing, from the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from redis.exceptions import RedisError

from chat.relay.state.runs import READ_ENTRIES, LogEntry, Runs
from engine.api import (
    Admitted,
    Completed,
    EngineError,
    EngineFailure,
    EngineUnavailable,
    ErrorCode,
    Event,
    Failed,
    Outcome,
    Rejected,
    RequestError,
)

INBOX_ENTRIES = 512
UNAVAILABLE_CODES = frozenset(
    {ErrorCode.OVERLOADED, ErrorCode.MODEL_LOADING, ErrorCode.WORKER_LOST, ErrorCode.LOG_LOST}
)
FAILURE_CODES = frozenset({ErrorCode.ENGINE_ERROR, ErrorCode.INTERNAL_ERROR, ErrorCode.MODEL_LOAD_FAILED})
STOPPED_MESSAGE = "The request was stopped before it began."
LOST_MESSAGE = "The connection to the run was lost; please send the request again."


class Source(Protocol):
    """The part of the dispatcher that a reader uses."""

    runs: Runs

    def leave(self, reader: RunReader, *, is_over: bool) -> None: ...
    async def stop(self, run_id: str, outcome: Outcome) -> None: ...


class RunReader:
    """One reader of one run, used by one task.

    `await first()`, then iterate: the events after Admitted, up to and including the terminal one. Always `leave()`.
    """

    def __init__(self, run_id: str, source: Source) -> None:
        self.run_id = run_id
        self.headers: dict[str, str] = {}
        """The `x-ratelimit-*` lines for the answer."""
        self.has_received = False
        self.is_started = False
        self.waits_for_model = False
        """The model was not loaded when the run was admitted."""
        self.client_outcome: Outcome | None = None
        """The outcome that this side gave the client's answer, if the run itself did not end it."""
        self._source = source
        self._attempt = 1
        self._next = 0
        self._inbox: deque[LogEntry] = deque()
        self._ready: deque[Event] = deque()
        self._waiter: asyncio.Future[bool] | None = None
        self._has_gap = False
        self._is_over = False
        self._has_left = False
        self._when_left: list[Callable[[], None]] = []

    async def first(self, *, timeout_s: float | None = None) -> Admitted:
        """Wait until the run is admitted. Raises RequestError (4xx), EngineUnavailable (503) or EngineFailure (500)."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._ready:
                    await self._advance()
        except TimeoutError:
            raise self.give_up(
                EngineUnavailable(
                    ErrorCode.OVERLOADED, f"No worker took the request within {timeout_s:g} s; please try again."
                )
            ) from None
        event = self._ready[0]
        if isinstance(event.payload, Admitted):
            self._ready.popleft()
            return event.payload
        if isinstance(event.payload, Rejected | Failed):
            raise error_of(event.payload)
        if isinstance(event.payload, Completed) and event.payload.outcome == Outcome.STOPPED:
            raise EngineFailure(ErrorCode.ENGINE_ERROR, STOPPED_MESSAGE)
        raise EngineFailure(ErrorCode.INTERNAL_ERROR, "The run began without an admission.")

    def give_up(self, error: EngineUnavailable) -> EngineUnavailable:
        """Return the error, after a note that it ends the client's answer."""
        self.client_outcome = Outcome.INTERRUPTED
        return error

    async def has_begun(self, timeout_s: float) -> bool:
        """Return True once the first event is there, False if none came for `timeout_s`."""
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_s
        while not self._ready:
            left_s = until - clock()
            if left_s <= 0:
                return False
            await self._advance(left_s)
        return True

    def __aiter__(self) -> RunReader:
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            await self._advance()
        return self._ready.popleft()

    async def next(self, timeout_s: float) -> Event | None:
        """Return the next event, or None after about `timeout_s` of silence. Raises StopAsyncIteration at the end."""
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            if not await self._advance(timeout_s):
                return None
        return self._ready.popleft()

    def leave(self) -> None:
        """Stop reading. Never awaits. A run without readers ends by its detach policy."""
        if not self._has_left:
            self._has_left = True
            self._source.leave(self, is_over=self._is_over)
            for act in self._when_left:
                act()

    def when_left(self, act: Callable[[], None]) -> None:
        """Call `act` once the reader has left, at once if it has. It must not fail."""
        if self._has_left:
            act()
        else:
            self._when_left.append(act)

    @property
    def attempt(self) -> int:
        """The number of the attempt that is read. It grows when the run goes on elsewhere."""
        return self._attempt

    async def stop(self, outcome: Outcome = Outcome.STOPPED) -> None:
        """End the run; its terminal event still comes through the iteration. Raises EngineUnavailable."""
        if self.client_outcome is not None:
            self.client_outcome = outcome
        await self._source.stop(self.run_id, outcome)

    # For the dispatcher.

    def read_back(self) -> None:
        self._has_gap = True

    @property
    def place(self) -> tuple[int, int]:
        """(attempt, next position): where to read the log from."""
        return self._attempt, self._next

    def offer(self, entry: LogEntry) -> None:
        """Offer an entry. If the reader is too slow, its inbox is dropped and it reads the log instead."""
        if self._is_over:
            return
        self.has_received = True
        if len(self._inbox) >= INBOX_ENTRIES:
            self._inbox.clear()
            self._has_gap = True
        else:
            self._inbox.append(entry)
        self._wake()

    def fail(self, code: ErrorCode) -> None:
        """End the reader's stream with an error."""
        if not self._is_over:
            self._is_over = True
            self.client_outcome = Outcome.WORKER_LOST if code is ErrorCode.LOG_LOST else Outcome.INTERRUPTED
            self._ready.append(Event(self._next, 1, Failed(code, LOST_MESSAGE)))
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    # Positions.

    async def _advance(self, timeout_s: float | None = None) -> bool:
        """Process one entry, or wait for one. Return False if none came for `timeout_s`."""
        if self._has_gap:
            self._has_gap = False
            await self._close_gap()
        elif self._inbox:
            entry = self._inbox.popleft()
            if not self._accept(entry):
                await self._close_gap()
                self._accept(entry)
        else:
            return await self._wait(timeout_s)
        return True

    async def _wait(self, timeout_s: float | None) -> bool:
        """Wait for an entry by a bare timer: this runs once per token, and asyncio.timeout costs several times more."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _end_wait, waiter)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _close_gap(self) -> None:
        """Read the log from `next` on. Recovery and sweep supply later what is not there yet."""
        try:
            entries = await self._source.runs.read_log(self.run_id, attempt=self._attempt, position=self._next)
        except (RedisError, OSError):
            return
        began_at = self._next
        for entry in entries:
            self._accept(entry)
        if len(entries) == READ_ENTRIES and self._next > began_at:
            self._has_gap = True

    def _accept(self, entry: LogEntry) -> bool:
        """Accept the events that fit. Return False if the entry begins after `next`."""
        if self._is_over:
            return True
        if entry.payload is None:
            return self._accept_begin(entry)
        if entry.attempt < self._attempt or entry.position < self._next:
            return True
        for event in entry.events():
            if event.start > self._next:
                return False
            if event.start == self._next:
                self._next = event.start + event.count
                self._attempt = entry.attempt
                self._ready.append(event)
                self._is_over = event.is_terminal
        return True

    def _accept_begin(self, entry: LogEntry) -> bool:
        """Accept the begin of an attempt. Fail below `next`, where it would contradict events already sent."""
        if entry.attempt <= self._attempt:
            return True
        if entry.position < self._next:
            self.fail(ErrorCode.LOG_LOST)
        elif entry.position == self._next:
            self._attempt, self._next = entry.attempt, entry.position + 1
        return entry.position <= self._next


def _end_wait(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


def error_of(payload: Rejected | Failed) -> EngineError:
    """Return the exception for a run that ended before its admission."""
    if payload.code in UNAVAILABLE_CODES:
        return EngineUnavailable(payload.code, payload.message, payload.param)
    if payload.code in FAILURE_CODES:
        return EngineFailure(payload.code, payload.message, payload.param)
    if isinstance(payload, Failed):
        return RequestError(payload.code, payload.message, payload.param)
    return RequestError(payload.code, payload.message, payload.param, limit=payload.limit, value=payload.value)
