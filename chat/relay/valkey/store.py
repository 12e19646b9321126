"""Connections to Valkey for the relay: short time-outs, no silent retries, and cancellation that works.

NOTE: redis-py would repeat a command whose answer was lost. A repeated XADD is refused as too old, which means "another
attempt owns the run" to us, so whoever writes here must see the loss itself.

NOTE: redis-py sends with `asyncio.wait_for` where a socket time-out is set, and until Python 3.12 that swallows a cancellation
that comes just after the send. A request whose client has left would then go on. So there is no socket time-out here; each
command and pipeline has its own, and raises TimeoutError (an OSError).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import TimeoutError as ValkeySlow

from chat.relay.valkey.wire import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, ErrorReply, Reply, RespClient

AWAY = (ValkeyAway, ValkeySlow, OSError)
"""What a Valkey that is away, or too slow, raises here."""
REFUSALS = ("MISCONF ", "OOM ", "READONLY ")
Answers = Any
"""How a client is annotated where its answers are read: redis-py's types do not know that ours are bytes, never text."""


class WritesRefused(ValkeyAway):
    """Valkey answers and takes no writes: its disk or its memory is full, or it is a replica. As good as away, and perhaps as soon back."""


class Valkey(Redis):
    """A client for one event loop, with a time-out per command. `eval` and `get`, for which requests wait, share one bare connection."""

    resp: RespClient

    async def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
        return await self._ask(b"EVAL", script, numkeys, *keys_and_args)

    async def get(self, name: Any) -> bytes | None:
        value: bytes | None = await self._ask(b"GET", name)
        return value

    def get_soon(self, name: str) -> Callable[[], Awaitable[bytes | None]]:
        """`get`, sent before this returns where there is a connection. What is given waits for the answer, once, or is left."""
        answer = self.resp.ask(b"GET", name.encode())
        return partial(self.get, name) if answer is None else partial(self._answered, answer)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.resp.close()
        await super().aclose(close_connection_pool)

    async def _ask(self, *parts: Any) -> Any:
        return reply_checked(await self.resp.call(*command_parts(*parts)))

    async def _answered(self, answer: asyncio.Future[Reply]) -> Reply:
        return reply_checked(await self.resp.answered(answer))

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
    client.resp = RespClient(url)
    return client


def reply_checked(answer: Reply) -> Reply:
    """An answer over a bare connection, where it is none of refusal. Raises redis.RedisError."""
    if isinstance(answer, ErrorReply):
        # A Valkey that still reads its files is away, for us as for redis-py.
        if answer.startswith(REFUSALS):
            raise WritesRefused(answer)
        raise BusyLoadingError(answer) if answer.startswith("LOADING ") else ResponseError(answer)
    return answer


def _judged(error: ResponseError) -> ResponseError | WritesRefused:
    """What redis-py raised for a refusal, in our words. It has a class for two of them, and quotes the third, in pipelines too."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError) or any(word in str(error) for word in REFUSALS):
        return WritesRefused(str(error))
    return error


def command_parts(*parts: Any) -> list[bytes]:
    """Parts of a command for a bare connection."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


def script_text(path: Path) -> str:
    """A Lua script beside our modules. Scripts are sent whole (EVAL): a restarted Valkey has forgotten the cached ones."""
    return path.read_text(encoding="utf-8")
