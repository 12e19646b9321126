"""How many lines of a batch are on their way at once: as many as may be, fewer where the server says no."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Pace:
    """A refusal halves the number and nobody goes before its wait is over; each answer adds one again. Used on one loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._num_running = 0
        self._paused_until = 0.0
        self._has_changed = asyncio.Event()

    @property
    def allowed(self) -> int:
        return min(self._allowed, self._most)

    def bound(self, most: int) -> None:
        """From now on no more than so many."""
        self._most = most
        self._has_changed.set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one more may go, and count it until it is back."""
        while (wait_s := self._wait_s()) != 0.0:
            self._has_changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._has_changed.wait()
            except TimeoutError:
                """The pause is over."""
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1
            self._has_changed.set()

    def refused(self, wait_s: float) -> None:
        self._allowed = max(1, self.allowed // 2)
        self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + wait_s)

    def answered(self) -> None:
        self._allowed = min(self._most, self._allowed + 1)
        self._has_changed.set()

    def _wait_s(self) -> float | None:
        """0: go; None: until somebody is back."""
        left_s = self._paused_until - asyncio.get_running_loop().time()
        if left_s > 0:
            return left_s
        return 0.0 if self._num_running < self.allowed else None
