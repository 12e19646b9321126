"""The publisher: it writes the engine's events to the logs of their runs and announces them to web processes.

A worker process has one, on one event loop. Each flush:
  1. cut: join the pending events of a run into one packed entry, which bounds the cost of a slow Valkey;
  2. write and announce (log_writer.py).
Each second it renews the worker's lease and inspects its runs. Entries that could not be written are appended once
Valkey is back. It knows neither the engine nor Celery nor Django.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.relay.state.keys import Keys
from chat.relay.state.runs import LEASE_MS, LIVE_LEASE_MS, Runs, watchers_of
from chat.relay.token_layer import TokenLayer
from chat.relay.valkey import AWAY, Answers, ValkeyLine
from chat.relay.worker.claims import Claims
from chat.relay.worker.log_writer import LogWriter
from chat.relay.worker.run_table import EventBatch, LiveRun, RunTable
from engine.api import Outcome

logger = logging.getLogger(__name__)

BEAT_S = 1.0
STEP_FLUSH_RUNS = 32
BATCH_FLUSH_S = 0.05
KEEP_ENDED_S = 10.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
BEATS_PER_RENEWAL = 10
CLAIMS_SETTLE_S = 2.0


class Publisher:
    """The owner of a worker's runs. `publish` and `is_letting_go` may be called from any thread, the rest on one loop.

    `abort(run_id, outcome)` ends a run in the engine. `lease()` returns the fields of the worker's lease, or None
    without a heartbeat of the core. `flush_mode`: "auto", "step" or "batch". `line` writes and announces steps in one
    round trip.
    """

    def __init__(
        self,
        *,
        client: Redis,
        keys: Keys,
        layer: TokenLayer,
        worker_id: str,
        slug: str,
        abort: Callable[[str, Outcome], None],
        lease: Callable[[], Mapping[str, Any] | None],
        clock: Callable[[], float] = time.time,
        flush_mode: str = "auto",
        line: ValkeyLine | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._slug = slug
        self.runs = Runs(client, keys, clock)
        self._client: Answers = client
        self._keys = keys
        self._lease = lease
        self._clock = clock
        self._flush_mode = flush_mode
        self._table = RunTable(abort)
        self._writer = LogWriter(runs=self.runs, layer=layer, worker_id=worker_id, table=self._table, line=line)
        self.claims = Claims(runs=self.runs, table=self._table, worker_id=worker_id, renew=self.beat)
        self._has_updates = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._writing = asyncio.Lock()
        self._backoff_s = MIN_BACKOFF_S
        self._num_beats = 0
        self._is_handing_over = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, beat_s: float = BEAT_S) -> None:
        """Start flushing and renewing the lease on the running loop. Return after the first renewal."""
        self._loop = asyncio.get_running_loop()
        await self.beat_safely()
        self._tasks = [asyncio.create_task(self._flush_forever()), asyncio.create_task(self._beat_forever(beat_s))]

    async def close(self) -> None:
        """Flush, give the lease back, stop the tasks and close the client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()
        try:
            await self._client.delete(self._keys.worker(self.worker_id))
        except (RedisError, OSError) as error:
            logger.warning("lease not given back: %s", error)
        await self._writer.close()
        await self._client.aclose()

    @property
    def num_live(self) -> int:
        return len(self._table.live)

    @property
    def has_work(self) -> bool:
        return self.claims.is_claiming or self.num_live > 0  # a run is claimed first and live after that

    def publish(self, batch: Iterable[EventBatch]) -> None:
        """Add the engine's events; return at once. Events of runs that another worker has taken over are dropped."""
        is_urgent, let_go = self._table.add_events(batch)
        for event in let_go:
            self._call_soon(event.set)
        self._call_soon(self._wake, is_urgent)

    def is_letting_go(self, run_id: str) -> bool:
        """Return True if another worker has taken the run over and the engine has not ended it yet."""
        return self._table.being_let_go(run_id) is not None

    async def flush(self) -> None:
        """Cut, write and announce; after a loss, recover first."""
        async with self._writing:
            if self._writer.has_lost and not await self._recover():
                return
            cut = [(run, entry) for run in self._table.take_dirty() if (entry := run.cut(self._clock())) is not None]
            # If Valkey has lost a run, only its terminal record is worth writing.
            kept = [(run, entry) for run, entry in cut if not run.is_forgotten or run.completion is not None]
            if kept:
                await self._writer.write_and_announce(kept)

    async def beat(self) -> None:
        """Renew the lease, then inspect each run: stop flag, readers, takeover, leases of its concurrency."""
        lease = None if self._is_handing_over else self._lease()
        runs = list(self._table.live.values())
        pipe = self._client.pipeline(transaction=False)
        if lease is not None:
            name = self._keys.worker(self.worker_id)
            pipe.hset(name, mapping=dict(lease))
            pipe.pexpire(name, LEASE_MS)
            pipe.sadd(self._keys.workers, self.worker_id)
            pipe.sadd(self._keys.model_workers(self._slug), self.worker_id)
        head = len(pipe)
        for run in runs:
            pipe.hgetall(self._keys.meta(run.run_id))
        if self._num_beats % BEATS_PER_RENEWAL == 0:
            self._renew_live(pipe, runs)
        self._num_beats += 1
        answers = await pipe.execute()
        for run, raw in zip(runs, answers[head:], strict=False):
            self._inspect(run, {name.decode(): value for name, value in raw.items()})
        self._table.forget_ended(self._clock() - KEEP_ENDED_S)

    async def beat_safely(self) -> None:
        """Beat; if Valkey is unavailable, note that there is something to recover."""
        try:
            await self.beat()
        except AWAY as error:
            logger.warning("Valkey does not answer: %s", error)
            self._writer.has_lost = True
            self._wake(True)
        except RedisError:
            logger.exception("heartbeat refused")

    def stop_run(self, run_id: str, outcome: Outcome) -> None:
        """End a live run early; ignore others."""
        if run_id in self._table.live:
            self._table.abort(run_id, outcome)

    async def hand_over(self, *, to_anyone: bool = False) -> list[tuple[str, int]]:
        """Give the lease back and take this worker's runs from it. Return (run id, next attempt) of each.

        Do nothing if no other worker is ready, unless `to_anyone`. From then on the logs refuse this worker's entries.
        """
        await self.flush()
        if not to_anyone and not (self._table.live and await self._is_other_ready()):
            return []
        self._is_handing_over = True
        await self._client.delete(self._keys.worker(self.worker_id))
        await self.claims.settled(CLAIMS_SETTLE_S)
        handed = []
        for run in list(self._table.live.values()):
            taken = await self.runs.take_over(run.run_id, self.worker_id)
            self._table.drop(run)
            if taken is not None:
                handed.append((run.run_id, taken[0]))
        return handed

    async def _is_other_ready(self) -> bool:
        for raw in await self._client.smembers(self._keys.model_workers(self._slug)) - {self.worker_id.encode()}:
            if await self._client.hget(self._keys.worker(raw.decode()), "state") == b"ready":
                return True
        return False

    # The loop's tasks.

    async def _flush_forever(self) -> None:
        while True:
            await self._has_updates.wait()
            if self._is_batching() and not self._is_urgent.is_set():
                try:
                    async with asyncio.timeout(BATCH_FLUSH_S):
                        await self._is_urgent.wait()
                except TimeoutError:
                    pass
            self._has_updates.clear()
            self._is_urgent.clear()
            try:
                await self.flush()
            except Exception:
                logger.exception("flush failed")
                self._writer.has_lost = True
            if self._writer.has_lost:
                self._has_updates.set()
                await asyncio.sleep(self._backoff_s)
                self._backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2)

    async def _beat_forever(self, beat_s: float) -> None:
        while True:
            await asyncio.sleep(beat_s)
            await self.beat_safely()

    def _is_batching(self) -> bool:
        return self._flush_mode == "batch" or (self._flush_mode == "auto" and len(self._table.live) > STEP_FLUSH_RUNS)

    def _wake(self, is_urgent: bool) -> None:
        self._has_updates.set()
        if is_urgent:
            self._is_urgent.set()

    def _call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(callback, *arguments)

    async def _recover(self) -> bool:
        """Append the entries that the logs lack. Return False while Valkey is unavailable."""
        try:
            await self.beat()
            missing = await self._writer.missing()
        except (RedisError, OSError):
            return False
        self._writer.has_lost = False
        self._backoff_s = MIN_BACKOFF_S
        if missing:
            num_runs = len({run.run_id for run, _ in missing})
            logger.info("Valkey is back: %d entries of %d runs written again", len(missing), num_runs)
            await self._writer.write_and_announce(missing)
        return not self._writer.has_lost

    # Inspecting runs.

    def _renew_live(self, pipe: Any, runs: list[LiveRun]) -> None:
        lease_end = int(self._clock() * 1000) + LIVE_LEASE_MS
        for run in runs:
            for name in run.claim.lives:
                pipe.zadd(name, {run.run_id: lease_end}, xx=True)
            pipe.zadd(self._keys.model_live(self._slug), {run.run_id: lease_end}, xx=True)

    def _inspect(self, run: LiveRun, meta: Mapping[str, bytes]) -> None:
        if not meta:
            return
        if int(meta["attempt"]) != run.claim.attempt:
            self._table.drop(run)
            return
        run.claim.watchers = watchers_of(meta)
        if meta.get("stop"):
            self.stop_run(run.run_id, Outcome(meta["stop"].decode()))
