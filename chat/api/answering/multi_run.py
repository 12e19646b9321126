"""The runs of one HTTP request, read together: one for each prompt or input.

1. `start` starts the first run, which counts as the request against the key's limits.
2. The others follow by themselves, at most `AT_ONCE` and half of the key's limit at once. One that a limit refuses is
   tried again after the end of another.
3. `next` returns the updates of all runs in the order in which they come. It raises the first failure; `leave` ends
   the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted, P, StartedRun, rejection_record, run_start
from chat.api.answering.streaming import admission_wait, ending_error, may_leave_no_token
from chat.api.request.parsed import ParsedRequest
from chat.errors import ApiError, run_error
from engine.api import Admitted, EngineError, Event

logger = logging.getLogger(__name__)

AT_ONCE = 32
RETRY_S = 1.0
MAX_UPDATES = 1_024
"""What waits for a slow client; beyond it, readers go by the log of their run."""

RunUpdate = Admitted | Event


class RunGroup:
    """The runs 0 to `count` - 1. `request_of` returns the request of each.

    One task uses a group; `leave` may be called at any time.
    """

    def __init__(self, accepted: Accepted[P], request_of: Callable[[int], ParsedRequest], count: int) -> None:
        self.headers: dict[str, str] = {}
        self.runs: list[StartedRun] = []
        self._accepted, self._request_of, self._count = accepted, request_of, count
        self._at_once = _at_once(accepted.caller)
        self._num_first = min(count, self._at_once)
        self._updates: asyncio.Queue[tuple[int, RunUpdate | ApiError]] = asyncio.Queue(MAX_UPDATES)
        self._early: deque[tuple[int, RunUpdate]] = deque()
        self._has_ended = asyncio.Event()
        self._num_live = 0
        self._num_over = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_over(self) -> bool:
        """Whether the last event of every run has been taken."""
        return self._num_over == self._count

    async def start(self) -> None:
        """Start the first run; raises ApiError, then nothing was started."""
        run = await self._begin(0)
        self.headers = dict(run.reader.headers)
        if self._count > 1:
            self._tasks.append(asyncio.create_task(self._begin_further()))

    async def admissions(self, timeout_s: float) -> None:
        """Wait until all runs that go on at once are admitted, except those that a limit holds back.

        Raises ApiError of a refusal.

        If the constraints could rule out every first token, wait for one more update, at most `timeout_s`. `next` still
        returns all of them.
        """
        num_admitted = 0
        while num_admitted < self._num_first:
            update = await self._take(None)
            assert update is not None
            self._early.append(update)
            num_admitted += isinstance(update[1], Admitted)
        if may_leave_no_token(self.runs[0].generation) and not any(
            isinstance(update, Event) for _, update in self._early
        ):
            further = await self._take(timeout_s)
            if further is not None:
                self._early.append(further)

    async def next(self, timeout_s: float | None = None) -> tuple[int, RunUpdate] | None:
        """Return the next update with the number of its run; None after `timeout_s` of silence.

        Raises ApiError of the first failure.
        """
        taken = self._early.popleft() if self._early else await self._take(timeout_s)
        if taken is not None and isinstance(taken[1], Event) and taken[1].is_terminal:
            self._num_over += 1
        return taken

    def leave(self) -> None:
        """Stop reading; runs that still go on end. Never awaits. Harmless after the end."""
        for task in self._tasks:
            task.cancel()
        for run in self.runs:
            run.reader.leave()

    async def _take(self, timeout_s: float | None) -> tuple[int, RunUpdate] | None:
        try:
            async with asyncio.timeout(timeout_s if self._updates.empty() else None):
                index, update = await self._updates.get()
        except TimeoutError:
            return None
        if isinstance(update, ApiError):
            raise update
        return index, update

    # Starting and following, in tasks of their own.

    async def _begin(self, index: int) -> StartedRun:
        accepted = self._accepted
        one = Accepted(
            accepted.caller, self._request_of(index), accepted.trace, accepted.arrived_at, 0, accepted.request_id
        )
        run = await run_start(one)
        self.runs.append(run)
        self._num_live += 1
        self._tasks.append(asyncio.create_task(self._follow(index, run)))
        return run

    async def _begin_further(self) -> None:
        index = 0
        try:
            for index in range(1, self._count):
                await self._begin_when_possible(index)
        except Exception as error:
            accepted = self._accepted
            rejection_record(error, caller=accepted.caller, trace=accepted.trace, arrived_at=accepted.arrived_at)
            await self._updates.put((index, _known(error)))

    async def _begin_when_possible(self, index: int) -> None:
        """Start a run when there is room for it. Raises ApiError if it is refused while no other of the group goes on.

        A line of a batch is tried again even then, as the batch would begin the whole line anew.
        """
        while True:
            while self._num_live >= self._at_once:
                await self._wait_for_an_end()
            try:
                await self._begin(index)
                return
            except ApiError as error:
                if error.status not in (429, 503):
                    raise
                if not self._num_live:
                    if not self._accepted.trace.batch_id or not error.kind.should_retry:
                        raise
                    await asyncio.sleep(RETRY_S if error.retry_after_s is None else error.retry_after_s)
                    continue
            self._num_first = min(self._num_first, len(self.runs))
            await self._wait_for_an_end()

    async def _wait_for_an_end(self) -> None:
        self._has_ended.clear()
        await self._has_ended.wait()

    async def _follow(self, index: int, run: StartedRun) -> None:
        """Put the updates of a run into the queue, a failure as the last."""
        try:
            await self._updates.put((index, await admission_wait(run)))
            async for event in run.reader:
                await self._updates.put((index, ending_error(event) or event))
        except Exception as error:
            await self._updates.put((index, _known(error)))
        finally:
            run.reader.leave()
            self._num_live -= 1
            self._has_ended.set()


def _at_once(caller: Caller) -> int:
    """Return how many runs of one request may go on at once."""
    return min(AT_ONCE, caller.limits.live_share)


def _known(error: Exception) -> ApiError:
    if not isinstance(error, EngineError | ApiError):
        logger.error("A run of several failed", exc_info=error)
    return run_error(error)
