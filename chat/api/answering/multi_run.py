"""The runs of one HTTP request, read together: one for each prompt or input.

The first run counts as the request against the key's limits. The others follow by themselves, at most `AT_ONCE` and
half of the key's limit at once; one that a limit refuses is tried again after the end of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace

from chat.api.answering.pipeline import Accepted, StartedRun, rejection_record, run_start
from chat.api.answering.streaming import (
    admission_wait,
    admission_watch,
    ending_error,
    failure_log,
    may_leave_no_token,
)
from chat.api.request.parsed import ParsedRequest, PromptsRequest
from chat.errors import ApiError
from chat.generation.waiting import Waiting
from engine.api import Admitted, Event

AT_ONCE = 32
RETRY_S = 1.0
MAX_UPDATES = 1_024
"""What waits for a slow client; beyond it, readers go by the log of their run."""

RunUpdate = Admitted | Event


class RunGroup:
    """The runs of a request's prompts, for one task. `reports_waiting`: updates say what the first run waits for."""

    def __init__(self, accepted: Accepted[PromptsRequest], *, reports_waiting: bool = False) -> None:
        self._reports_waiting = reports_waiting
        self.headers: dict[str, str] = {}
        self.runs: list[StartedRun] = []
        self._accepted, self._count = accepted, len(accepted.parsed.prompts)
        self._at_once = min(AT_ONCE, accepted.caller.limits.live_share)
        self._num_first = min(self._count, self._at_once)
        self._updates: asyncio.Queue[tuple[int, RunUpdate | Waiting | ApiError]] = asyncio.Queue(MAX_UPDATES)
        self._early: deque[tuple[int, RunUpdate | Waiting]] = deque()
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
        """Wait until all runs that go on at once are admitted, except those that a limit holds back. Raises ApiError.

        If the constraints could rule out every first token, wait at most `timeout_s` for one more update. `next` still
        returns all of them.
        """
        num_admitted = 0
        while num_admitted < self._num_first:
            update = await self._take(None)
            assert update is not None
            self._early.append(update)
            num_admitted += isinstance(update[1], Admitted)
        has_event = any(isinstance(update, Event) for _, update in self._early)
        if may_leave_no_token(self.runs[0].generation) and not has_event:
            further = await self._take(timeout_s)
            if further is not None:
                self._early.append(further)

    async def next(self, timeout_s: float | None = None) -> tuple[int, RunUpdate | Waiting] | None:
        """Return a run's number and its next update; None after `timeout_s` of silence. Raises a run's ApiError."""
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

    async def _take(self, timeout_s: float | None) -> tuple[int, RunUpdate | Waiting] | None:
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
        accepted: Accepted[ParsedRequest] = self._accepted
        # A weighted alias or a fallback leads all of them to one model.
        by_model = self.runs[0].model if self.runs else None
        run = await run_start(replace(accepted, parsed=self._accepted.parsed.of(index), num_bytes=0), by_model=by_model)
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
            await self._updates.put((index, failure_log(error, "A run of several failed")))

    async def _begin_when_possible(self, index: int) -> None:
        """Start a run when there is room for it. Raises ApiError if it is refused while no other of the group goes on.

        A line of a batch is tried again even then, as the batch would begin the whole line anew.
        """
        while True:
            while self._num_live >= self._at_once:
                await self._end_wait()
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
            await self._end_wait()

    async def _end_wait(self) -> None:
        self._has_ended.clear()
        await self._has_ended.wait()

    async def _follow(self, index: int, run: StartedRun) -> None:
        try:
            if self._reports_waiting and index == 0:
                async for update in admission_watch(run):
                    await self._updates.put((index, update))
            else:
                await self._updates.put((index, await admission_wait(run)))
            async for event in run.reader:
                await self._updates.put((index, ending_error(event) or event))
        except Exception as error:
            await self._updates.put((index, failure_log(error, "A run of several failed")))
        finally:
            run.reader.leave()
            self._num_live -= 1
            self._has_ended.set()


async def group_start(accepted: Accepted[PromptsRequest], *, reports_waiting: bool = False) -> RunGroup:
    """Start the runs of a checked request. The caller must leave them. Raises ApiError."""
    group = RunGroup(accepted, reports_waiting=reports_waiting)
    await group.start()
    return group
