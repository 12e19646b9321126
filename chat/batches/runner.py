"""The batch runner: claims open batches and works on them. Each maintenance worker has one (workers/maintenance.py)."""

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
    """Claims batches and works on up to `MAX_WORKS` of them. Create it on its loop; call `wake` from any thread."""

    def __init__(self) -> None:
        self.owner = f"{socket.gethostname()[:20]}~{secrets.token_hex(8)}"
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(settings.LIGHTCONE_BATCH_CONCURRENCY)
        self._works: dict[int, asyncio.Task[None]] = {}
        self._is_called = asyncio.Event()

    def wake(self) -> None:
        """Look for batches now rather than at the next turn."""
        self._loop.call_soon_threadsafe(self._is_called.set)

    async def turn(self, *, wait_s: float = TURN_S) -> None:
        """Start work on open, unclaimed batches, then wait for `wake` or `wait_s`. Raises DatabaseError."""
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
        """Wait for the present work; for tests."""
        await asyncio.gather(*self._works.values())

    async def close(self) -> None:
        """Stop and release the claims, so that the next runner need not wait for their expiry. Raises DatabaseError."""
        works = dict(self._works)
        for task in works.values():
            task.cancel()
        await asyncio.gather(*works.values(), return_exceptions=True)
        for pk in works:
            await database_sync_to_async(batch_release)(pk=pk, owner=self.owner)

    async def _work(self, batch: Batch) -> None:
        # NOTE: the code that answers requests takes tens of megabytes. Import it only if there are batches.
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
