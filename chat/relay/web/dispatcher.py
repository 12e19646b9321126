"""Dispatcher: feeds the readers of runs from the layer and, if that is silent, from the log.

There is one per event loop of a web process. Its tasks start with the first run (Daphne has no lifespan events):
  receive   takes layer messages, without a time-out (a cancelled receive would unsubscribe), for the readers
  sweep     every 500 ms reads the logs of all readers that received nothing since the last sweep, in one pipeline
  tick      every second tells the thread that renews the lease (lease.py) that the loop is alive, and writes counts
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer
from django.conf import settings
from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.relay.commands import stop_send_async
from chat.relay.state.keys import Keys
from chat.relay.state.runs import LEASE_MS, LogEntry, RunInfo, Runs, log_entries
from chat.relay.state.workers import WorkerLease, worker_leases
from chat.relay.token_layer import TokenLayer
from chat.relay.valkey import Answers, BlockingValkey, valkey_connect, valkey_connect_blocking
from chat.relay.web.chores import Chores, Refusals, refusals
from chat.relay.web.lease import WebLease
from chat.relay.web.reader import RunReader
from engine.api import EngineUnavailable, ErrorCode, Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_S = 0.5
TICK_S = 1.0
START_TIMEOUT_S = 2.0
LAYER_RETRY_S = 0.5
AWAY_BEFORE_FAILING_S = 10.0
SILENT_SWEEPS_BEFORE_LOST = 4
SEEN_S = 0.5
MAX_PLACES = 256
UNREAD = (1, 0)


class Dispatcher:
    """The readers of each run, and the tasks that feed them. `send_stop(worker_id, run_id, outcome)` may fail."""

    def __init__(
        self,
        *,
        client: Redis,
        keys: Keys,
        layer: TokenLayer,
        lease_client: BlockingValkey,
        send_stop: Callable[[str, str, str], Awaitable[None]],
        refusals: Refusals,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.web_id = secrets.token_hex(8)
        self.channel = ""
        self.is_cutting = False
        """The process is closing its clients' connections: a reader that leaves now was cut off by the server."""
        self.runs = Runs(client, keys, clock)
        self._client: Answers = client
        self._keys = keys
        self._layer = layer
        self._last_scripts: dict[str, asyncio.Task[Any]] = {}
        self._lease = WebLease(lease_client, keys, self.web_id)
        self._send_stop = send_stop
        self._clock = clock
        self._readers: dict[str, list[RunReader]] = {}
        self._numbers: dict[str, int] = {}
        self._silent_sweeps: dict[RunReader, int] = {}
        self._away_since: float | None = None
        self.chores = Chores(client=client, keys=keys, leave_run=self._leave_run, refusals=refusals)
        self._seeing = asyncio.Lock()
        self._seen: list[WorkerLease] = []
        self._seen_at = 0.0
        self._sweep_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    async def start(self, *, sweep_s: float = SWEEP_S) -> None:
        """Subscribe, take the lease and start the tasks, once. Raises redis.RedisError or OSError."""
        if self._tasks:
            return
        # NOTE: the time-out includes the lock, or requests would wait one after the other while Valkey is unavailable.
        async with asyncio.timeout(START_TIMEOUT_S), self._starting:
            if self._tasks:
                return
            self.channel = self.channel or await self._layer.new_channel(f"web.{self.web_id}.")
            await self._take_lease()
            self._lease.start(self.channel)
            self._tasks = [
                asyncio.create_task(work)
                for work in (self._receive_forever(), self._sweep_forever(sweep_s), self._tick_forever())
            ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self.chores.close(), return_exceptions=True)
        self._tasks = []
        await asyncio.to_thread(self._lease.close)
        await self._client.delete(self._keys.web(self.web_id))
        await self._client.aclose()

    def reader(self, run_id: str) -> RunReader:
        """Register a reader, before the run is admitted, so that nothing is missed."""
        reader = RunReader(run_id, self)
        self._readers.setdefault(run_id, []).append(reader)
        return reader

    async def attach(self, run_id: str) -> tuple[RunReader, RunInfo] | None:
        """Register another reader of a run, from its first event; None if it is gone. Raises RedisError or OSError."""
        reader = self.reader(run_id)
        reader.is_started = True
        try:
            found = await self.in_order(run_id, self.runs.attach(run_id, web_id=self.web_id, channel=self.channel))
        except BaseException:
            reader.leave()
            raise
        if found is None:
            reader.leave()
            return None
        reader.read_back()
        return reader, found

    async def in_order(self, run_id: str, script: Coroutine[Any, Any, T]) -> T:
        """Run a script that changes whether this process reads a run, after the earlier ones of the run.

        A cancelled caller does not cancel it. Otherwise a leave could overtake the admission that it takes back.
        """
        previous = self._last_scripts.get(run_id)
        task = self._last_scripts[run_id] = asyncio.create_task(_run_after(previous, script))
        task.add_done_callback(partial(self._note_script, run_id))
        return await asyncio.shield(task)

    def _note_script(self, run_id: str, task: asyncio.Task[Any]) -> None:
        if self._last_scripts.get(run_id) is task:
            del self._last_scripts[run_id]
        if not task.cancelled():
            task.exception()  # marks the exception of an abandoned script as retrieved

    def _forget(self, reader: RunReader) -> None:
        readers = self._readers.get(reader.run_id, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(reader.run_id, None)
        self._silent_sweeps.pop(reader, None)

    def _all_readers(self) -> list[RunReader]:
        return [reader for readers in self._readers.values() for reader in readers]

    # For readers.

    def leave(self, reader: RunReader, *, is_over: bool) -> None:
        self._forget(reader)
        if reader.is_started:
            cut = Outcome.INTERRUPTED if self.is_cutting and not is_over else None
            self.chores.add_leave(reader.run_id, reader.client_outcome or cut)

    async def stop(self, run_id: str, outcome: Outcome = Outcome.STOPPED) -> None:
        try:
            worker_id = await self.runs.stop(run_id, outcome.value)
        except (RedisError, OSError) as error:
            raise EngineUnavailable(
                ErrorCode.OVERLOADED, "The server cannot be reached at the moment; please try again."
            ) from error
        if worker_id:
            await self._notify_worker(worker_id, run_id, outcome.value)

    async def workers(self) -> list[WorkerLease]:
        return await worker_leases(self._client, self._keys)

    async def workers_seen(self) -> list[WorkerLease]:
        """Return the leases as they were in the last half second, for the many runs that wait."""
        async with self._seeing:
            if self._clock() - self._seen_at >= SEEN_S:
                self._seen, self._seen_at = await self.workers(), self._clock()
            return self._seen

    async def place_in_queue(self, run_id: str, slug: str) -> int:
        """Return how many runs of the model wait before this one, of the first MAX_PLACES that wait for any model."""
        rank = await self._client.zrank(self._keys.queued, run_id)
        if not rank:
            return 0
        pipe = self._client.pipeline(transaction=False)
        for raw in await self._client.zrange(self._keys.queued, max(0, rank - MAX_PLACES), rank - 1):
            pipe.hget(self._keys.meta(raw.decode()), "slug")
        return sum(found == slug.encode() for found in await pipe.execute())

    async def configuration_epoch(self) -> bytes | None:
        """Return the counter of configuration changes; None before the first."""
        epoch: bytes | None = await self._client.get(self._keys.configuration_epoch)
        return epoch

    # The tasks.

    async def _receive_forever(self) -> None:
        while True:
            try:
                message = await self._layer.receive(self.channel)
            except (RedisError, OSError) as error:
                logger.warning("layer does not answer: %s", error)
                await asyncio.sleep(LAYER_RETRY_S)
                continue
            try:
                if message.get("type") == "lc.step":
                    self._hand_out(message)
            except (KeyError, ValueError, TypeError):
                # The log has what one message lacks; the loop must go on, as it feeds every reader.
                logger.exception("layer message not understood")

    def _hand_out(self, message: Mapping[str, Any]) -> None:
        worker, number = message["worker"], message["n"]
        expected = self._numbers.get(worker, number - 1) + 1
        self._numbers[worker] = number
        if number != expected:
            self._sweep_now.set()
        for run_id, attempt, position, payload in message["deltas"]:
            for reader in self._readers.get(run_id, ()):
                reader.offer(LogEntry(attempt, position, payload))

    async def _sweep_forever(self, sweep_s: float) -> None:
        while True:
            is_jump = False
            try:
                async with asyncio.timeout(sweep_s):
                    await self._sweep_now.wait()
                    is_jump = True
            except TimeoutError:
                pass
            self._sweep_now.clear()
            try:
                await self.sweep(everyone=is_jump)
                if self._lease.is_refused:
                    self._valkey_is_full()
                else:
                    self._away_since = None
            except (RedisError, OSError) as error:
                self._valkey_is_away(error)

    async def sweep(self, *, everyone: bool = False) -> None:
        """Read the logs of readers that received nothing since the last sweep (of all readers after a lost message)."""
        readers = self._all_readers()
        silent = [reader for reader in readers if reader.is_started and (everyone or not reader.has_received)]
        for reader in readers:
            reader.has_received = False
        if not silent:
            return
        pipe = self._client.pipeline(transaction=False)
        for reader in silent:
            attempt, position = reader.place
            pipe.xrange(self._keys.log(reader.run_id), min=f"{attempt}-{position}", count=256)
            pipe.hget(self._keys.meta(reader.run_id), "state")
        answers = await pipe.execute()
        for reader, raw, state in zip(silent, answers[0::2], answers[1::2], strict=True):
            for entry in log_entries(raw):
                reader.offer(entry)
            self._judge_silence(reader, is_lost=not raw and state in (None, b"ended"))

    def _judge_silence(self, reader: RunReader, *, is_lost: bool) -> None:
        """Fail a reader whose run is over or lost and whose log has had nothing more for several sweeps."""
        sweeps = self._silent_sweeps[reader] = self._silent_sweeps.get(reader, 0) + 1 if is_lost else 0
        if sweeps >= SILENT_SWEEPS_BEFORE_LOST:
            reader.fail(ErrorCode.LOG_LOST)

    def _valkey_is_away(self, error: Exception | str) -> None:
        now = self._clock()
        if self._away_since is None:
            self._away_since = now
            logger.warning("Valkey does not answer: %s", error)
        if now - self._away_since >= AWAY_BEFORE_FAILING_S:
            for reader in self._all_readers():
                reader.fail(ErrorCode.LOG_LOST)

    def _valkey_is_full(self) -> None:
        """Handle a Valkey that refuses writes. A client that has received nothing yet can retry at once."""
        self._valkey_is_away("it refuses writes")
        for reader in self._all_readers():
            if reader.place == UNREAD:
                reader.fail(ErrorCode.OVERLOADED)

    async def _take_lease(self) -> None:
        pipe = self._client.pipeline(transaction=False)
        pipe.set(self._keys.web(self.web_id), self.channel, px=LEASE_MS)
        pipe.sadd(self._keys.webs, self.web_id)
        await pipe.execute()

    async def _tick_forever(self) -> None:
        while True:
            self._lease.tick()
            await self.chores.write_refusals()
            await asyncio.sleep(TICK_S)

    async def _leave_run(self, run_id: str, client_outcome: Outcome | None) -> None:
        """Remove this process from the readers of a run, unless another of its readers is left."""
        # NOTE: an attach after this check runs its script after this one, and is registered again.
        if any(reader.is_started for reader in self._readers.get(run_id, ())):
            return
        worker_id = await self.in_order(run_id, self.runs.leave(run_id, self.web_id, client_outcome))
        if worker_id:
            await self._notify_worker(worker_id, run_id, (client_outcome or Outcome.DISCONNECTED).value)

    async def _notify_worker(self, worker_id: str, run_id: str, outcome: str) -> None:
        """Notify the worker at once. If that fails, it finds the stop flag within a second."""
        try:
            await self._send_stop(worker_id, run_id, outcome)
        except Exception as error:
            logger.warning("stop of run %s not sent: %s", run_id, error)


async def _run_after(previous: asyncio.Task[Any] | None, script: Coroutine[Any, Any, T]) -> T:
    if previous is not None:
        await asyncio.wait([previous])
    return await script


_dispatchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Dispatcher] = WeakKeyDictionary()


def dispatcher_of_loop() -> Dispatcher:
    loop = asyncio.get_running_loop()
    dispatcher = _dispatchers.get(loop)
    if dispatcher is None:
        dispatcher = _dispatchers[loop] = Dispatcher(
            client=valkey_connect(settings.LIGHTCONE_REDIS_URL),
            keys=Keys(settings.LIGHTCONE_DEPLOYMENT),
            layer=get_channel_layer("tokens"),
            lease_client=valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL),
            send_stop=stop_send_async,
            refusals=refusals,
        )
    return dispatcher


def dispatchers() -> list[Dispatcher]:
    return list(_dispatchers.values())
