"""A small in-process cache whose entries live for seconds, so that a request costs no query."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


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
