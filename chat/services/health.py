"""Whether this installation can serve now, as far as a web process can see."""

from __future__ import annotations

import asyncio

from redis.exceptions import RedisError

from chat.relay.workers import WorkerLease
from chat.services.completions import dispatcher_of_loop

ANSWER_TIMEOUT_S = 2.0


async def workers_live() -> list[WorkerLease]:
    """What the live workers say of themselves; empty when Valkey is away."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await dispatcher_of_loop().workers()
    except (RedisError, OSError):
        return []


async def is_ready() -> bool:
    """Valkey answers and a live worker has its model ready."""
    return any(worker.state == "ready" for worker in await workers_live())
