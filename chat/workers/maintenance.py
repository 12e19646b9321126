"""The Celery bootstep of the maintenance worker: usage, reaper, states, unfinished answers, metrics, batches, alerts.

These are loops, as a beat task would cost a broker message a second and add up to a second. The writer waits inside
Valkey for the first record and then 200 ms for more, so rows appear at once and transactions are large under load. Beat
starts the daily tasks (retention).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from celery import bootsteps
from celery.beat import Service as BeatService
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import Error as DatabaseError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.alerts.runner import DeliveryRunner
from chat.alerts.watch import Watch
from chat.api.registry import counted_routes, stored_endings
from chat.api.stored.recovery import UnfinishedAnswers
from chat.batches.runner import BatchRunner
from chat.budgets.counters import Rebuild
from chat.catalog.services import model_names, model_state_report
from chat.conversations.recovery import UnfinishedTurns
from chat.model_jobs.runner import JobRunner
from chat.relay.commands import stop_send_async, task_send_async
from chat.relay.reaper import Reaper
from chat.relay.state.keys import Keys
from chat.relay.state.runs import Runs
from chat.relay.state.usage_stream import UsageStream
from chat.relay.state.workers import UNLOADED, ModelCondition, model_conditions, worker_leases
from chat.relay.valkey import valkey_connect
from chat.relay.worker.loop_thread import LoopThread
from chat.usage.metrics import RequestMetrics, system_render, system_state
from chat.usage.metrics_server import MetricsServer
from chat.usage.services import TerminalRecord, usage_records_write
from chat.workers.exit import worker_leave

logger = logging.getLogger(__name__)

GATHER_S = 0.2
TURN_S = 1.0
STATES_S = 0.25
UNFINISHED_S = 2.0
ALERTS_S = 5.0
METRICS_TIMEOUT_S = 5.0
NAMES_TIMEOUT_S = 2.0
LAST_WRITES_S = 5.0
BEAT_TURN_S, BEAT_STOP_S, BEAT_RETRY_S = 1, 2.0, 30.0
BEAT_DIED_CODE = 1

BUDGETS_S, BUDGETS_WAIT_S = 5.0, 0.25

write_records = database_sync_to_async(usage_records_write)
report_state = database_sync_to_async(model_state_report)


async def usage_write_once(
    stream: UsageStream,
    *,
    gather_s: float = GATHER_S,
    count: Callable[[list[TerminalRecord]], None] = lambda records: None,
) -> int:
    """Wait for a record, gather more, store them in one transaction, count and acknowledge them.

    Return the number of records taken. If the database refuses, they stay in the stream for the next turn or writer.
    """
    if not await stream.lock():
        await asyncio.sleep(TURN_S)
        return 0
    batch = await stream.left_over()
    if not batch:
        batch = await stream.read()
        if batch:
            await asyncio.sleep(gather_s)
            batch += await stream.read(block_ms=None)
    if batch:
        count(await write_records([record for _, record in batch]))
        await stream.done([entry_id for entry_id, _ in batch])
    return len(batch)


async def counters_rebuild(rebuild: Rebuild) -> None:
    """Set the counters of budgets once the records that wait now are stored."""
    while await database_sync_to_async(rebuild.turn)() is None:  # noqa: ASYNC110  # Valkey has no event of this
        await asyncio.sleep(BUDGETS_WAIT_S)


class ModelStates:
    """Writes the condition of each model into SQL when it changes. A model without a worker is unloaded."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._known: dict[str, ModelCondition] = {}

    async def turn(self) -> None:
        names = await database_sync_to_async(model_names)()
        conditions = model_conditions(await worker_leases(self._client, self._keys))
        for name in names:
            # The measured memory changes all the time, and is not stored.
            condition = replace(conditions.get(name, UNLOADED), memory_bytes=0)
            if self._known.get(name) != condition:
                await report_state(
                    name=name,
                    state=condition.state,
                    reason=condition.reason,
                    max_model_len=condition.max_model_len or None,
                    maker_defaults=condition.maker_defaults,
                    computed_by=condition.computed_by,
                    modalities=condition.modalities,
                )
                self._known[name] = condition


async def metrics_text(requests: RequestMetrics, client: Redis, keys: Keys) -> bytes:
    try:
        async with asyncio.timeout(METRICS_TIMEOUT_S):
            state = await system_state(client, keys, await _names_known())
    except (RedisError, OSError) as error:
        logger.warning("metrics without gauges: %s", error)
        state = None
    return requests.render() + system_render(state)


async def _names_known() -> list[str]:
    """Return the models to show even without a worker; none if the database is unavailable."""
    try:
        async with asyncio.timeout(NAMES_TIMEOUT_S):
            return await database_sync_to_async(model_names)()
    except (TimeoutError, DatabaseError) as error:
        logger.warning("metrics without the models that no worker serves: %s", error)
        return []


class Beat(threading.Thread):
    """Celery's beat in a thread of the worker. Without beat nothing is cleaned up, so the worker ends if it dies."""

    def __init__(self, app: Any) -> None:
        super().__init__(name="beat", daemon=True)
        self._app = app
        self._is_over = threading.Event()
        self._service = self._make_service()

    def run(self) -> None:
        """Send due tasks until `close`. Waits while the disk is full."""
        try:
            self._app.set_current()
            while not self._is_over.is_set():
                self._work()
        except Exception:
            logger.exception("beat cannot go on, and so this worker ends")
            worker_leave(BEAT_DIED_CODE)

    def close(self) -> None:
        """Stop after the current turn, which takes as long as the broker is unavailable; wait a bounded time."""
        self._is_over.set()
        self._service.stop()
        self.join(BEAT_STOP_S)

    def _work(self) -> None:
        try:
            Path(settings.CELERY_BEAT_SCHEDULE_FILENAME).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._service.start()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.warning("beat waits for room on the disk: %s", error)
            self._is_over.wait(BEAT_RETRY_S)
            self._service = self._make_service()

    def _make_service(self) -> Any:
        return BeatService(self._app, max_interval=BEAT_TURN_S)


class MaintenanceStep(bootsteps.StartStopStep):
    """Runs the loops in one thread, and beat in another.

    Celery's own option forks a process for beat: 43 MiB, orphaned if the worker is stopped while it starts.
    """

    requires = ("celery.worker.components:Pool",)

    def start(self, worker: Any) -> None:
        self._loop = LoopThread("maintenance")
        self._loop.call(self._begin())
        worker.app.batch_runner = self._batches
        self._beat = Beat(worker.app)
        self._beat.start()

    def stop(self, worker: Any) -> None:
        """Store the last records, so that nothing waits for the next start."""
        self._beat.close()
        try:
            self._loop.call(self._end(), LAST_WRITES_S)
        except (TimeoutError, RedisError, OSError, DatabaseError) as error:
            logger.warning("usage records stay in the stream until the next start: %s", error)
        self._loop.close()

    terminate = stop

    async def _begin(self) -> None:
        client, keys = valkey_connect(settings.LIGHTCONE_REDIS_URL), Keys(settings.LIGHTCONE_DEPLOYMENT)
        self._stream = UsageStream(client, keys)
        reaper = Reaper(client=client, keys=keys, clock=time.time, send_task=task_send_async, send_stop=stop_send_async)
        states = ModelStates(client, keys)
        runs = Runs(client, keys, time.time)
        unfinished, turns_left = UnfinishedAnswers(runs, stored_endings()), UnfinishedTurns(runs)
        self._batches = BatchRunner()
        self._jobs = JobRunner(client, keys)
        self._deliveries = DeliveryRunner()
        requests = RequestMetrics(counted_routes() | {"/v1/batches", "/ws/playground"})
        self._metrics = MetricsServer(lambda: metrics_text(requests, client, keys))
        if settings.LIGHTCONE_METRICS_PORT:
            await self._metrics.start(settings.LIGHTCONE_METRICS_HOST, settings.LIGHTCONE_METRICS_PORT)
        turns = (
            (partial(usage_write_once, self._stream, count=requests.count), 0.0, "usage writer"),
            (reaper.turn, TURN_S, "reaper"),
            (states.turn, STATES_S, "model states"),
            (unfinished.turn, UNFINISHED_S, "unfinished answers"),
            (turns_left.turn, UNFINISHED_S, "unfinished turns"),
            (self._batches.turn, 0.0, "batches"),
            (self._jobs.turn, TURN_S, "jobs on models"),
            (Watch(client, keys).turn, ALERTS_S, "alerts"),
            (self._deliveries.turn, TURN_S, "deliveries of alerts"),
            (partial(counters_rebuild, Rebuild()), BUDGETS_S, "counters of budgets"),
        )
        self._tasks = [asyncio.create_task(_forever(*turn)) for turn in turns]

    async def _end(self) -> None:
        self._metrics.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._jobs.close()
        await self._deliveries.close()
        await self._batches.close()
        if await self._stream.lock():
            while batch := await self._stream.left_over() or await self._stream.read(block_ms=None):
                await write_records([record for _, record in batch])
                await self._stream.done([entry_id for entry_id, _ in batch])
            await self._stream.unlock()


async def _forever(turn: Callable[[], Awaitable[object]], pause_s: float, name: str) -> None:
    """Repeat a turn. Failures are logged, and the turn is tried again after a second."""
    while True:
        wait_s = TURN_S
        try:
            await turn()
            wait_s = pause_s
        except (RedisError, OSError, DatabaseError) as error:
            logger.warning("%s waits: %s", name, error)
        except Exception:
            logger.exception("%s failed", name)
        await asyncio.sleep(wait_s)
