"""An event loop in a thread of its own, for worker processes, whose main thread belongs to Celery.

Channel layers and Valkey clients keep connections per loop, so all asynchronous code of a worker runs on one such loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """A thread that runs an event loop from its construction until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Run a coroutine on the loop and wait for its result, from any other thread. Raises TimeoutError."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine on the loop; it is cancelled by `close`."""
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()
