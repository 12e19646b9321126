"""Concurrency of a batch by additive increase, multiplicative decrease (AIMD; Chiu and Jain 1989)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class AimdLimiter:
    """Limits concurrent requests of one loop. A refusal halves the limit and pauses requests; an answer adds one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._allowed = most
        self._num_running = 0
        self._paused_until = 0.0
        self._has_changed = asyncio.Event()

    @property
    def allowed(self) -> int:
        return min(self._allowed, self._most)

    def set_most(self, most: int) -> None:
        self._most = most
        self._has_changed.set()

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Wait for a permit and hold it within the context."""
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

    def back_off(self, wait_s: float) -> None:
        """Halve the limit, and give no permit for `wait_s` seconds."""
        self._allowed = max(1, self.allowed // 2)
        self._paused_until = max(self._paused_until, asyncio.get_running_loop().time() + wait_s)

    def grow(self) -> None:
        self._allowed = min(self._most, self._allowed + 1)
        self._has_changed.set()

    def _wait_s(self) -> float | None:
        """Return the seconds to wait; 0: a permit is free; None: until one is returned."""
        left_s = self._paused_until - asyncio.get_running_loop().time()
        if left_s > 0:
            return left_s
        return 0.0 if self._num_running < self.allowed else None
