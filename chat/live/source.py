"""One snapshot a process and second, however many pages look, and none while nobody does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from chat.live.snapshot import Snapshot, snapshot_read
from chat.relay.state.keys import Keys
from chat.relay.valkey import valkey_connect_blocking

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
FRESH_S = 0.9
"""A snapshot that is younger is given to the next who asks."""
AWAY = (RedisError, OSError, DatabaseError)


class SnapshotSource:
    """A reader that keeps the last snapshot. `latest` is thread-safe and blocks."""

    def __init__(self, read: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[float, Snapshot] | None = None

    def latest(self) -> Snapshot:
        """Return a snapshot that is at most a second old. Raises what the stores raise, and any error of reading."""
        with self._lock:
            now = self._clock()
            if self._kept is None or now - self._kept[0] >= FRESH_S:
                self._kept = (now, self._read())
            return self._kept[1]

    def forget(self) -> None:
        """Let the next one who asks have a new snapshot, as after an act."""
        with self._lock:
            self._kept = None


def _read() -> Snapshot:
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        return snapshot_read(client, Keys(settings.LIGHTCONE_DEPLOYMENT))


source = SnapshotSource(_read)
"""That of this process."""


def snapshot_or_none() -> Snapshot | None:
    """Return the present snapshot; None while a store does not answer, or holds what cannot be read."""
    try:
        return source.latest()
    except AWAY as error:
        logger.warning("no live snapshot: %s", error)
    except Exception:
        logger.exception("no live snapshot")
    return None


@dataclass(frozen=True, slots=True)
class Tick:
    """What happens once a second: a snapshot, or None where a store does not answer."""

    snapshot: Snapshot | None


class Ticker:
    """One task that reads a snapshot a second for all sockets of a process, and rests while there is none.

    It belongs to the event loop of the first that listens; the others are of the same loop.
    """

    def __init__(self, of: SnapshotSource, *, period_s: float = PERIOD_S) -> None:
        self._source = of
        self._period_s = period_s
        self._queues: set[asyncio.Queue[Tick]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def num_listeners(self) -> int:
        return len(self._queues)

    def listen(self) -> asyncio.Queue[Tick]:
        """Return a queue of one place that gets each tick; a slow listener misses some."""
        queue: asyncio.Queue[Tick] = asyncio.Queue(maxsize=1)
        self._queues.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        return queue

    def leave(self, queue: asyncio.Queue[Tick]) -> None:
        self._queues.discard(queue)
        if not self._queues and self._task is not None:
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """Let all listeners go, and wait until nothing is read any more."""
        task, self._task = self._task, None
        self._queues.clear()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            began_at = time.monotonic()
            try:
                tick = Tick(await database_sync_to_async(self._source.latest)())
            except AWAY as error:
                logger.warning("no live snapshot: %s", error)
                tick = Tick(None)
            except Exception:
                logger.exception("no live snapshot")
                tick = Tick(None)
            for queue in self._queues:
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(tick)
            await asyncio.sleep(max(0.0, self._period_s - (time.monotonic() - began_at)))


ticker = Ticker(source)
"""That of this process."""
