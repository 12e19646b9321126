"""Writes of a web process that a cancelled request may not await itself.

They are leaves of readers, and records of requests that never became runs. One task writes them in order, and repeats
them while Valkey is unavailable. Requests that were refused for their API key are counted alone, since a database row
for each would let any client fill the database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.relay.state.keys import Keys
from chat.relay.state.records import pack_record
from chat.relay.valkey import Answers
from engine.api import Outcome

logger = logging.getLogger(__name__)

LOG_EVERY_S = 60.0
RETRY_S = 0.5
MAX_RECORDS = 4096
MAX_UNREAD_RECORDS = 200_000
RECORDS_PER_PIPELINE = 100


class Refusals:
    """Counts of refused requests by status: since the last `take`, and since the last log line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[int] = Counter()
        self._unlogged: Counter[int] = Counter()
        self._logged_at = -LOG_EVERY_S

    def add(self, counts: Mapping[int, int]) -> None:
        self._counts.update(counts)

    def note(self, status: int) -> None:
        """Count one refusal, and log the counts at most once a minute."""
        self._counts[status] += 1
        self._unlogged[status] += 1
        if self._clock() - self._logged_at >= LOG_EVERY_S:
            counts = ", ".join(f"{number} with {status}" for status, number in sorted(self._unlogged.items()))
            logger.warning("requests refused for their API key since the last such line: %s", counts)
            self._unlogged.clear()
            self._logged_at = self._clock()

    def take(self) -> dict[int, int]:
        counts = dict(self._counts)
        self._counts.clear()
        return counts


refusals = Refusals()


class Chores:
    """The leaves and records that wait. `leave_run(run_id, client_outcome)` leaves one run, and may be repeated."""

    def __init__(
        self,
        *,
        client: Redis,
        keys: Keys,
        leave_run: Callable[[str, Outcome | None], Awaitable[None]],
        refusals: Refusals,
    ) -> None:
        self.leaves: deque[tuple[str, Outcome | None]] = deque()
        """There is one leave per reader, so the queue needs no bound."""
        self.records: deque[Mapping[str, Any]] = deque()
        self._client: Answers = client
        self._keys = keys
        self._leave_run = leave_run
        self._refusals = refusals
        self._has_work = asyncio.Event()
        self._has_settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add_leave(self, run_id: str, client_outcome: Outcome | None) -> None:
        self.leaves.append((run_id, client_outcome))
        self._wake()

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Write a terminal record soon; drop it when too many wait."""
        if len(self.records) < MAX_RECORDS:
            self.records.append(record)
            self._wake()

    async def settle(self) -> None:
        """Wait until all leaves and records are in Valkey, however long it is unavailable."""
        if self.leaves or self.records:
            self._has_settled.clear()
            await self._has_settled.wait()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def write_refusals(self) -> None:
        counts = self._refusals.take()
        if not counts:
            return
        pipe = self._client.pipeline(transaction=False)
        for status, number in counts.items():
            pipe.hincrby(self._keys.refused, str(status), number)
        try:
            await pipe.execute()
        except (RedisError, OSError):
            self._refusals.add(counts)

    def _wake(self) -> None:
        """Wake the task. It starts here, as there may be chores before the first run."""
        if self._task is None:
            self._task = asyncio.create_task(self._work_forever())
        self._has_work.set()

    async def _work_forever(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            try:
                await self._work()
            except (RedisError, OSError) as error:
                logger.warning("leaves and records wait for Valkey: %s", error)
                await asyncio.sleep(RETRY_S)
                self._has_work.set()
            except (TypeError, ValueError):
                # NOTE: only packing raises these, and leaves must never wait behind a record that cannot be packed.
                logger.exception("%d records of refused requests dropped", len(self.records))
                self.records.clear()
            if not (self.leaves or self.records):
                self._has_settled.set()

    async def _work(self) -> None:
        while self.leaves:
            await self._leave_run(*self.leaves[0])
            self.leaves.popleft()
        if self.records and await self._client.xlen(self._keys.usage) >= MAX_UNREAD_RECORDS:
            logger.warning("%d records of refused requests dropped: the usage writer is behind", len(self.records))
            self.records.clear()
        while self.records:
            pipe = self._client.pipeline(transaction=False)
            batch = [self.records[i] for i in range(min(RECORDS_PER_PIPELINE, len(self.records)))]
            for record in batch:
                pipe.xadd(self._keys.usage, {"r": pack_record(record)})
            await pipe.execute()
            for _ in batch:
                self.records.popleft()
