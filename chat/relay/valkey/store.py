"""Connections to Valkey for the relay: short time-outs, no silent retries, and cancellation that works.

NOTE: redis-py would repeat a command whose reply was lost. A repeated XADD is refused as too old, which here means
"another attempt owns the run", so the writer must see the loss itself.

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
"""The exceptions of a Valkey that is unavailable or too slow."""
REFUSALS = ("MISCONF ", "OOM ", "READONLY ")
Answers = Any
"""The annotation of a client whose replies are read: redis-py's types do not know that they are bytes, never text."""


class WritesRefused(ValkeyAway):
    """Valkey replies but takes no writes: its disk or memory is full, or it is a replica. Treated as unavailable."""


class Valkey(Redis):
    """A client for one event loop, with a time-out per command.

    `eval` and `get`, on which requests wait, use `resp`.
    """

    resp: RespClient

    async def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
        return await self._ask(b"EVAL", script, numkeys, *keys_and_args)

    async def get(self, name: Any) -> bytes | None:
        value: bytes | None = await self._ask(b"GET", name)
        return value

    def get_soon(self, name: str) -> Callable[[], Awaitable[bytes | None]]:
        """Send a GET at once if there is a connection.

        Return a function that waits for the reply; call it once or drop it.
        """
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
    """Return a client for the running loop. `url`: redis://, rediss:// or unix://; replies are bytes. Connects on first
    use.

    Beyond `max_connections` at once, commands wait for a free one.
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
    """Return `answer`, or raise the matching redis exception if it is an error reply."""
    if isinstance(answer, ErrorReply):
        # A Valkey that is still loading its files counts as unavailable, as it does for redis-py.
        if answer.startswith(REFUSALS):
            raise WritesRefused(answer)
        raise BusyLoadingError(answer) if answer.startswith("LOADING ") else ResponseError(answer)
    return answer


def _judged(error: ResponseError) -> ResponseError | WritesRefused:
    """Map a redis-py error of a refused write to WritesRefused. Two kinds have a class, the third only a message."""
    if isinstance(error, OutOfMemoryError | ReadOnlyError) or any(word in str(error) for word in REFUSALS):
        return WritesRefused(str(error))
    return error


def command_parts(*parts: Any) -> list[bytes]:
    """Encode the parts of a command for RespClient or SyncPool."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


def script_text(path: Path) -> str:
    """Read a Lua script. Scripts are sent whole (EVAL), as a restarted Valkey has lost the cached ones."""
    return path.read_text(encoding="utf-8")
