"""How a worker claims runs: a first attempt from the thread that has its task, a later one on the publisher's loop.

chat.relay.worker.publisher owns the table of runs. A run is claimed once, however often its task is delivered.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial

from chat.relay.state.runs import Claim, LogEntry, NotNow, Runs
from chat.relay.valkey.line import PendingReply, SyncPool
from chat.relay.valkey.store import AWAY, command_parts, reply_checked
from chat.relay.worker.live_run import LiveRun
from chat.relay.worker.run_table import RunTable

logger = logging.getLogger(__name__)

LET_GO_TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.05
CLAIM_RETRIES = 7
SETTLE_PAUSE_S = 0.02

Taken = tuple[Claim, list[LogEntry]]
"""A claim, and the log entries of earlier attempts."""


class Claims:
    """The claims of one worker.

    `ask_first` may be called from any thread, and needs `sync_pool`; the function that it returns blocks, so it must
    not run on the loop. `take` runs on the loop. `renew` renews the worker's lease, if its engine is alive.
    """

    def __init__(
        self,
        *,
        runs: Runs,
        table: RunTable,
        worker_id: str,
        renew: Callable[[], Awaitable[None]],
        sync_pool: SyncPool | None = None,
    ) -> None:
        self._runs = runs
        self._table = table
        self._worker_id = worker_id
        self._renew = renew
        self._pool = sync_pool
        self._taking: set[str] = set()
        self._lock = threading.Lock()

    def ask_first(self, run_id: str) -> Callable[[], Claim | None]:
        """Send the claim for attempt 1. Return a function that blocks for the result; it must be called.

        Its result is None if the run is taken or gone. It raises AWAY without a reply, and NotNow if the lease has
        lapsed; `take` may then try again.
        """
        assert self._pool is not None
        command = command_parts(b"EVAL", *self._runs.claim_command(run_id, 1, self._worker_id))
        if not self._begin(run_id):
            return _nothing
        if run_id in self._table.live:
            self._taking.discard(run_id)
            return _nothing
        return partial(self._first, run_id, self._pool.ask(*command))

    def _first(self, run_id: str, asked: PendingReply) -> Claim | None:
        try:
            claim = self._runs.claim_read(run_id, 1, reply_checked(asked.answer()))
            if claim is not None:
                self._table.put(LiveRun(claim, self._worker_id))
            return claim
        finally:
            self._taking.discard(run_id)

    async def take(self, run_id: str, attempt: int) -> Taken | None:
        """Claim a queued run. Return it with the log of earlier attempts; None if it is taken or gone.

        Raises AWAY if Valkey stays unavailable; the run may then be claimed all the same. Raises NotNow if the worker
        has no lease and gets none, or if its engine still holds the attempt before.
        """
        if not self._begin(run_id):
            return None
        try:
            return await self._take(run_id, attempt)
        finally:
            self._taking.discard(run_id)

    @property
    def is_claiming(self) -> bool:
        """True while a claim is pending. After it, the run is in the table or belongs to another worker."""
        return bool(self._taking)

    async def settled(self, timeout_s: float) -> None:
        """Wait until no claim is pending, at most `timeout_s`. Once the lease is gone, no later claim succeeds."""
        for _ in range(int(timeout_s / SETTLE_PAUSE_S)):
            if not self._taking:
                return
            await asyncio.sleep(SETTLE_PAUSE_S)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _begin(self, run_id: str) -> bool:
        """Return False for a task that is delivered twice: Valkey would grant the run to each claim of the same worker."""
        with self._lock:
            is_new = run_id not in self._taking
            self._taking.add(run_id)
        return is_new

    async def _take(self, run_id: str, attempt: int) -> Taken | None:
        previous = self._table.live.get(run_id)
        if previous is not None and previous.claim.attempt == attempt:
            return None
        if previous is not None and previous.claim.attempt < attempt:
            self._table.drop(previous)
        if (gone := self._table.being_let_go(run_id)) is not None:
            # NOTE: the engine must have ended the old attempt, or its last events would count as events of the new one.
            try:
                async with asyncio.timeout(LET_GO_TIMEOUT_S):
                    await gone.wait()
            except TimeoutError:
                raise NotNow from None
        taken = await self._claim(run_id, attempt)
        if taken is not None:
            claim, log = taken
            self._table.put(LiveRun(claim, self._worker_id, is_logged=bool(log)))
        return taken

    async def _claim(self, run_id: str, attempt: int) -> Taken | None:
        """Claim, and repeat the claim if the reply is lost: otherwise a run could be claimed by a worker that does not
        know it.
        """
        for pause_s in (FIRST_PAUSE_S * 2**number for number in range(CLAIM_RETRIES)):
            try:
                return await self._claim_once(run_id, attempt)
            except AWAY as error:
                logger.warning("claim of run %s not answered: %s", run_id, error)
                await asyncio.sleep(pause_s)
        return await self._claim_once(run_id, attempt)

    async def _claim_once(self, run_id: str, attempt: int) -> Taken | None:
        try:
            claim = await self._runs.claim(run_id, attempt, self._worker_id)
        except NotNow:
            # The process was suspended for longer than its lease. It is alive, so the run need not wait for another
            # worker.
            await self._renew()
            claim = await self._runs.claim(run_id, attempt, self._worker_id)
        if claim is None:
            return None
        return claim, await self._runs.read_whole_log(run_id) if attempt > 1 else []


def _nothing() -> None:
    """The result of a claim that was never sent."""
