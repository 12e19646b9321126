"""Connections to Valkey for the relay: short time-outs, no silent retries, and cancellation that works.

NOTE: redis-py would repeat a command whose answer was lost. A repeated XADD is refused as too old, which means "another
attempt owns the run" to us, so whoever writes here must see the loss itself.

NOTE: redis-py sends with `asyncio.wait_for` where a socket time-out is set, and until Python 3.12 that swallows a cancellation
that comes just after the send. A request whose client has left would then go on. So there is no socket time-out here; each
command and pipeline has its own, and raises TimeoutError (an OSError).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

Answers = Any
"""How a client is annotated where its answers are read: redis-py's types do not know that ours are bytes, never text."""

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 2.0


class Valkey(Redis):
    """A client for one event loop, with a time-out per command."""

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await super().execute_command(*arguments, **options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> ValkeyPipeline:
        return ValkeyPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class ValkeyPipeline(Pipeline):
    """A pipeline with one time-out for all its answers."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await super().execute(raise_on_error)


def valkey_connect(url: str, *, max_connections: int = 32) -> Valkey:
    """A client for the running loop. `url`: redis://, rediss:// or unix://; answers are bytes. Connects on first use.

    Beyond `max_connections` at once, commands wait for one to be free.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
        max_connections=max_connections,
        protocol=2,
    )
    client = Valkey(connection_pool=pool)
    client.auto_close_connection_pool = True
    return client


def script_text(path: Path) -> str:
    """A Lua script beside our modules. Scripts are sent whole (EVAL): a restarted Valkey has forgotten the cached ones."""
    return path.read_text(encoding="utf-8")
