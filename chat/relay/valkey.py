"""Clients of Valkey for the relay: redis-py with short time-outs, no silent retries, and cancellation that works.

NOTE: redis-py would repeat a command whose reply was lost. A repeated XADD is refused as too old, which here means
"another attempt owns the run", so the writer must see the loss itself.

NOTE: redis-py sends with `asyncio.wait_for` where a socket time-out is set, and until Python 3.12 that swallows a
cancellation that comes just after the send. A request whose client has left would then go on. So there is no socket
time-out here; each command and pipeline has its own, and raises TimeoutError (an OSError).

NOTE: two commands of one client may take two connections, so their order is open until the first has its reply.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redis import Redis as BlockingRedis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as ValkeySlow
from redis.retry import Retry as BlockingRetry

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 2.0
AWAY = (ValkeyAway, ValkeySlow, OSError)
REFUSALS = ("MISCONF ", "OOM ", "READONLY ")
Answers = Any
"""The annotation of a client whose replies are read: redis-py's types do not know that they are bytes, never text."""


class WritesRefused(ValkeyAway):
    """Valkey answers but takes no writes: its disk or memory is full, or it is a replica. Treated as unavailable."""


class Valkey(Redis):
    """A client for one event loop, with a time-out per command."""

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await super().execute_command(*arguments, **options)
        except ResponseError as error:
            raise _judged(error) from None

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> ValkeyPipeline:
        return ValkeyPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class ValkeyPipeline(Pipeline):
    """A pipeline with one time-out for all its answers."""

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await super().execute(raise_on_error)
        except ResponseError as error:
            raise _judged(error) from None


class ValkeyLine:
    """One connection for one event loop, for the commands of each token alone. It carries one command at a time.

    Without a pool, retries and measurements it takes half the processor time of `Valkey` (docs/decisions/0014).
    """

    def __init__(self, url: str) -> None:
        self._connection = connection_make(url)
        self._turn = asyncio.Lock()

    async def call(self, *parts: bytes | str | int) -> Any:
        """Send a command and wait for its reply. Raises redis.RedisError or OSError, though it may have run."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S), self._turn:
                await self._connection.send_command(*parts, check_health=False)
                return await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            raise _judged(error) from None

    async def close(self) -> None:
        await self._connection.disconnect()


class BlockingValkey(BlockingRedis):
    """A client for threads."""

    def execute_command(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().execute_command(*arguments, **options)
        except ResponseError as error:
            raise _judged(error) from None


def valkey_connect(url: str, *, max_connections: int = 32) -> Valkey:
    """Return a client for the running loop. Beyond `max_connections` at once, commands wait for a free one."""
    client = Valkey(connection_pool=_pool(url, max_connections))
    client.auto_close_connection_pool = True
    return client


def connection_make(url: str) -> AbstractConnection:
    """Return a connection that opens with its first command."""
    connection: AbstractConnection = _pool(url, 1).make_connection()
    return connection


def _pool(url: str, max_connections: int) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(
        url,
        timeout=ANSWER_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
        max_connections=max_connections,
        protocol=2,
    )


def valkey_connect_blocking(url: str) -> BlockingValkey:
    client = BlockingValkey.from_url(
        url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        retry=BlockingRetry(NoBackoff(), 0),
        protocol=2,
    )
    return cast(BlockingValkey, client)


def _judged(error: ResponseError) -> ResponseError | WritesRefused:
    """Map the error of a refused write to WritesRefused. MISCONF has no class, only a message."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError) or any(word in str(error) for word in REFUSALS):
        return WritesRefused(str(error))
    return error


async def lock_hold(client: Answers, name: str, token: bytes, life_ms: int) -> bool:
    """Take or renew the lock `name` for `token`. Return False while another token holds it."""
    if await client.set(name, token, nx=True, px=life_ms):
        return True
    if await client.get(name) != token:
        return False
    await client.pexpire(name, life_ms)
    return True
