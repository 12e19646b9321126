"""Finds open batches and works at those that nobody else has. One in each maintenance worker; a loop of workers/maintenance.py."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket

from channels.db import database_sync_to_async
from django.conf import settings

from chat.batches.models import Batch
from chat.batches.services import ClaimLost, batch_claim, batch_release, batches_open

logger = logging.getLogger(__name__)

TURN_S = 2.0
MAX_WORKS = 64


class BatchRunner:
    """Made on its loop. `wake` may be called from any thread."""

    def __init__(self) -> None:
        self.owner = f"{socket.gethostname()[:20]}~{secrets.token_hex(8)}"
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(settings.LIGHTCONE_BATCH_CONCURRENCY)
        self._works: dict[int, asyncio.Task[None]] = {}
        self._is_called = asyncio.Event()

    def wake(self) -> None:
        """There may be news: do not wait for the next turn."""
        self._loop.call_soon_threadsafe(self._is_called.set)

    async def turn(self, *, wait_s: float = TURN_S) -> None:
        """Take up what is open and free, then wait for a call, or `wait_s`. Raises DatabaseError."""
        for pk in await database_sync_to_async(batches_open)():
            if pk not in self._works and len(self._works) < MAX_WORKS:
                batch = await database_sync_to_async(batch_claim)(pk=pk, owner=self.owner)
                if batch is not None:
                    self._works[pk] = asyncio.create_task(self._work(batch))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._is_called.wait()
        self._is_called.clear()

    async def settle(self) -> None:
        """Wait for what is being worked at; for tests."""
        await asyncio.gather(*self._works.values())

    async def close(self) -> None:
        """Stop where the batches stand and let go of them, so that whoever starts next need not wait. Raises DatabaseError."""
        works = dict(self._works)
        for task in works.values():
            task.cancel()
        await asyncio.gather(*works.values(), return_exceptions=True)
        for pk in works:
            await database_sync_to_async(batch_release)(pk=pk, owner=self.owner)

    async def _work(self, batch: Batch) -> None:
        # NOTE: the code that answers requests takes tens of megabytes, which a maintenance worker without batches does not need.
        from chat.batches.work import BatchWork

        try:
            await BatchWork(batch, owner=self.owner, slots=self._slots).run()
        except ClaimLost:
            logger.info("batch %s has changed or is another runner's; it is looked at again", batch.public_id)
        except Exception:
            logger.exception("work at batch %s broke off; it is taken up again", batch.public_id)
            await asyncio.sleep(TURN_S)
        finally:
            self._works.pop(batch.pk, None)
