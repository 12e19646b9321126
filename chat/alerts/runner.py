"""The sender of deliveries in the maintenance worker: some at a time, so that a hanging receiver delays no other."""

from __future__ import annotations

import asyncio
import logging

from django.utils import timezone

from chat.alerts.deliveries import claim, delivery_try, end
from chat.alerts.models import AlertDelivery

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 8


class DeliveryRunner:
    """Repeat `turn`. Each channel has one try at a time; what is not sent when the process ends is sent by the next."""

    def __init__(self, *, most_at_once: int = MOST_AT_ONCE) -> None:
        self._most = most_at_once
        self._tries: dict[asyncio.Task[None], int | None] = {}

    async def turn(self) -> int:
        """Begin the tries that are due, and return their number."""
        free = self._most - len(self._tries)
        if free <= 0:
            return 0
        busy = [channel_id for channel_id in self._tries.values() if channel_id is not None]
        claimed = await claim(now=timezone.now(), most=free, busy=busy)
        for delivery in claimed:
            task = asyncio.create_task(self._try(delivery))
            self._tries[task] = delivery.channel_id
            task.add_done_callback(lambda done: self._tries.pop(done, None))
        return len(claimed)

    async def wait(self) -> None:
        """Wait until the tries that have begun are over."""
        await asyncio.gather(*self._tries, return_exceptions=True)

    async def close(self) -> None:
        """Break tries off. They count as lost, and are due again a minute after they began."""
        for task in list(self._tries):
            task.cancel()
        await self.wait()

    async def _try(self, delivery: AlertDelivery) -> None:
        try:
            await end(delivery, await delivery_try(delivery), now=timezone.now())
        except Exception:
            logger.exception("the result of delivery %s is not stored; it is tried again", delivery.public_id)
