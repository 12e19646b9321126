"""Caches of keys and models in a process, so that a request costs no query, and the announcement of changes to them.

Services call `configuration_touch()` beside each write. After the commit `configuration_changed` empties the caches of
this process, and the epoch in Valkey rises, which other processes read with each request (`authentication.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import redis
from django.conf import settings
from django.db import transaction
from django.dispatch import Signal

from chat.relay.state.keys import Keys

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

TIMEOUT_S = 1.0

configuration_changed = Signal()


def configuration_touch() -> None:
    """Announce the change once the current transaction has committed."""
    transaction.on_commit(_make_known)


def _make_known() -> None:
    configuration_changed.send(sender=None)
    url, keys = settings.LIGHTCONE_REDIS_URL, Keys(settings.LIGHTCONE_DEPLOYMENT)
    try:
        with redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S) as client:
            client.incr(keys.configuration_epoch)
    except redis.RedisError as error:
        # While Valkey is away no cache is trusted, and entries live for seconds only.
        logger.warning("configuration epoch not raised: %s", error)


class TTLCache(Generic[Value]):
    """A thread-safe LRU cache of at most `max_entries`. `clock`: monotonic seconds.

    `generation` counts clearings. A reader notes it before it reads the database and passes it to `put`, which drops
    a value that was read before a change.
    """

    def __init__(self, *, max_entries: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_entries = max_entries
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Value]] = OrderedDict()
        self._lock = threading.Lock()
        self.generation = 0

    def get(self, name: str) -> Value | None:
        with self._lock:
            entry = self._entries.get(name)
            if entry is None:
                return None
            if entry[0] <= self._clock():
                del self._entries[name]
                return None
            self._entries.move_to_end(name)
            return entry[1]

    def put(self, name: str, value: Value, *, generation: int, max_ttl_s: float | None = None) -> None:
        ttl_s = self._ttl_s if max_ttl_s is None else min(self._ttl_s, max_ttl_s)
        with self._lock:
            if generation != self.generation:
                return
            self._entries[name] = (self._clock() + ttl_s, value)
            self._entries.move_to_end(name)
            if len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.generation += 1
