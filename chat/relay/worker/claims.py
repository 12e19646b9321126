"""Claims of queued runs for one worker, on the publisher's loop.

A run is claimed once, however often its task is delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chat.relay.state.runs import Claim, LogEntry, NotNow, Runs
from chat.relay.valkey import AWAY
from chat.relay.worker.run_table import LiveRun, RunTable

logger = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 5.0
"""How long a claim waits for the engine to end the worker's previous attempt of the run."""
FIRST_PAUSE_S = 0.05
CLAIM_RETRIES = 7
SETTLE_PAUSE_S = 0.02

Taken = tuple[Claim, list[LogEntry]]
"""A claim, and the log entries of earlier attempts."""


class Claims:
    """The claims of one worker. `renew` renews the worker's lease if its engine is alive."""

    def __init__(self, *, runs: Runs, table: RunTable, worker_id: str, renew: Callable[[], Awaitable[None]]) -> None:
        self._runs = runs
        self._table = table
        self._worker_id = worker_id
        self._renew = renew
        self._pending: set[str] = set()

    async def take(self, run_id: str, attempt: int) -> Taken | None:
        """Claim a queued run. Return it with the log of earlier attempts; None if it is taken or gone.

        Raises AWAY if Valkey stays unavailable, though the run may be claimed, and NotNow if the worker gets no lease
        or its engine still holds the attempt before.
        """
        if run_id in self._pending:
            return None  # a task that was delivered twice: Valkey would grant the run to each claim of the same worker
        self._pending.add(run_id)
        try:
            return await self._take(run_id, attempt)
        finally:
            self._pending.discard(run_id)

    @property
    def is_claiming(self) -> bool:
        return bool(self._pending)

    async def settled(self, timeout_s: float) -> None:
        """Wait until no claim is pending, at most `timeout_s`. Once the lease is gone, no later claim succeeds."""
        for _ in range(int(timeout_s / SETTLE_PAUSE_S)):
            if not self._pending:
                return
            await asyncio.sleep(SETTLE_PAUSE_S)

    async def _take(self, run_id: str, attempt: int) -> Taken | None:
        previous = self._table.live.get(run_id)
        if previous is not None and previous.claim.attempt == attempt:
            return None
        if previous is not None and previous.claim.attempt < attempt:
            self._table.drop(previous)
        if (gone := self._table.being_let_go(run_id)) is not None:
            # NOTE: the engine must have ended the old attempt, or its last events would count as events of the new one.
            try:
                async with asyncio.timeout(ABORT_TIMEOUT_S):
                    await gone.wait()
            except TimeoutError:
                raise NotNow from None
        taken = await self._claim(run_id, attempt)
        if taken is not None:
            claim, log = taken
            self._table.put(LiveRun(claim, self._worker_id, is_logged=bool(log)))
        return taken

    async def _claim(self, run_id: str, attempt: int) -> Taken | None:
        """Claim, and repeat the claim if the reply is lost: otherwise a worker could own a run without knowing it."""
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
            # The process was suspended for longer than its lease, and is alive.
            await self._renew()
            claim = await self._runs.claim(run_id, attempt, self._worker_id)
        if claim is None:
            return None
        return claim, await self._runs.read_whole_log(run_id) if attempt > 1 else []
