"""Share the places for slow work among tenants: none takes more of them than it leaves free. Thread-safe.

The first tenant takes half of the places, the next half of the rest, and one is left for another. The worker's threads
are few: code that hands work to child processes (killable.py) or reads long texts (inputs/encoding.py) uses this.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.memory import HeapTrimmer

MAX_THREADS = 12
"""The most of a worker's 16 threads. The others stay for requests that need no slow work."""
MAX_READERS = 3
"""The most long texts that are tokenised at a time. The library keeps a hundred megabytes for a million tokens."""
LONG_TEXT = 1 << 16
"""The characters of a long text, which takes 10 ms and more."""
GIVE_BACK_S = 5.0
"""The delay after long texts until memory is returned. By then their answers have been written."""
PATIENCE_S = 0.25
"""The wait of a thread for a place of its tenant to come back. Most slow work takes milliseconds."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A waiting thread. `has_seen_one`: a place of the tenant came back meanwhile."""

    tenant: str
    has_seen_one: bool = False


class Places:
    """A number of places. The thread whose tenant has the fewest goes first, then the first to come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._stuck: set[str] = set()
        """Tenants with a thread that waited in vain, and no place back since."""
        self._changed = threading.Condition()

    def take(self, tenant: str, timeout_s: float | None = None) -> bool:
        """Take a place; False if none came in time, at once if a thread of the tenant has just waited in vain."""
        own = _Waiting(tenant)
        with self._changed:
            self._waiting.append(own)
            is_stuck = timeout_s is not None and tenant in self._stuck
            is_free = self._changed.wait_for(lambda: self._next() is own, 0 if is_stuck else timeout_s)
            self._waiting.remove(own)
            if is_free:
                self._taken[tenant] += 1
            elif self._taken[tenant] and not own.has_seen_one:
                self._stuck.add(tenant)
            self._changed.notify_all()
        return is_free

    def give_back(self, tenant: str) -> None:
        with self._changed:
            self._stuck.discard(tenant)
            for waiting in self._waiting:
                waiting.has_seen_one |= waiting.tenant == tenant
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]
            self._changed.notify_all()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """Hold a place, however long the wait is."""
        self.take(tenant)
        try:
            yield
        finally:
            self.give_back(tenant)

    def _next(self) -> _Waiting | None:
        num_free = self._count - self._taken.total()
        entitled = [waiting for waiting in self._waiting if self._taken[waiting.tenant] < num_free]
        return min(entitled, key=lambda waiting: self._taken[waiting.tenant], default=None)


class SlowWork:
    """The slow work of one worker's threads, of every sort together."""

    def __init__(self, max_threads: int = MAX_THREADS, patience_s: float = PATIENCE_S) -> None:
        self._places = Places(max_threads)
        self._readers = Places(MAX_READERS)
        self._heap_trimmer = HeapTrimmer(GIVE_BACK_S)
        self._max_threads = max_threads
        self._patience_s = patience_s

    @contextmanager
    def of(self, tenant: str) -> Iterator[None]:
        """Do slow work for a tenant. Raises EngineUnavailable if it already has its share in hand."""
        if not self._places.take(tenant, self._patience_s):
            message = (
                "this project has as many files, templates, constraints and long texts in work as it may have at once, "
                f"at most {(self._max_threads + 1) // 2}; try again later"
            )
            raise EngineUnavailable(ErrorCode.OVERLOADED, message)
        try:
            yield
        finally:
            self._places.give_back(tenant)

    @contextmanager
    def on_text(self, num_chars: int, tenant: str) -> Iterator[None]:
        """Tokenise a text of a tenant, which is slow work only if it is long. Raises EngineUnavailable."""
        if num_chars < LONG_TEXT:
            yield
            return
        with self.of(tenant), self._readers.one(tenant):
            try:
                yield
            finally:
                self._heap_trimmer.schedule()
