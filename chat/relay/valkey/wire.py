"""A minimal RESP2 client for asyncio, for the commands of each token and each request.

redis-py opens the connection (address, password, TLS). Its transport then feeds the parser of this module, which
resolves the waiting future in the same turn of the loop. chat.relay.valkey.store uses it for the commands on which
requests wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECT_TIMEOUT_S = 1.0
ANSWER_TIMEOUT_S = 2.0
LOST_MESSAGE = "Valkey closed the connection"

Reply = Any
"""bytes, int, None, an ErrorReply or a list of these."""


class ErrorReply(str):
    """An error that Valkey replied with."""


def pack_command(*parts: bytes) -> bytes:
    """Encode a command in RESP."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def read_reply(data: bytes | bytearray, at: int) -> tuple[Reply, int] | None:
    """Parse the reply at offset `at`.

    Return it and the offset of the next one, or None if it is incomplete. Raises ValueError.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, head, at = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b"+":
        return bytes(head), at
    if kind == b"-":
        return ErrorReply(head.decode(errors="replace")), at
    if kind == b":":
        return int(head), at
    if kind not in (b"$", b"*"):
        raise ValueError(f"Valkey answered with something else than RESP2: {kind!r}")
    size = int(head)
    if size < 0:
        return None, at
    if kind == b"$":
        return (bytes(data[at : at + size]), at + size + 2) if len(data) >= at + size + 2 else None
    items = []
    for _ in range(size):
        item = read_reply(data, at)
        if item is None:
            return None
        items.append(item[0])
        at = item[1]
    return items, at


class RespConnection(asyncio.Protocol):
    """An open connection that calls `on_answer` for each reply and `on_lost` at its end, both on the loop; neither may
    block.
    """

    def __init__(
        self, connection: AbstractConnection, on_answer: Callable[[Reply], None], on_lost: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._rest = bytearray()
        """The start of an incomplete reply. It grows in place, as a request of many MiB arrives in hundreds of
        pieces."""
        # NOTE: redis-py has no way to give its transport away; the versions in requirements.txt are the ones that we know.
        assert connection._writer is not None
        self._transport = cast(asyncio.Transport, connection._writer.transport)
        self._former = self._transport.get_protocol()
        self._transport.set_protocol(self)

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection at once; `on_lost` follows."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data
            del self._rest[: self._read_answers(self._rest)]
        else:
            self._rest += data[self._read_answers(data) :]

    def _read_answers(self, data: bytes | bytearray) -> int:
        """Pass on each complete reply. Return the offset of the rest."""
        at = 0
        try:
            while at < len(data) and (found := read_reply(data, at)) is not None:
                answer, at = found
                self._on_answer(answer)
        except ValueError:
            self.close()
        return at

    def connection_lost(self, exc: Exception | None) -> None:
        self._former.connection_lost(exc)
        self._on_lost()


async def resp_connect(url: str, on_answer: Callable[[Reply], None], on_lost: Callable[[], None]) -> RespConnection:
    """Raises redis.RedisError or OSError."""
    options: dict[str, Any] = dict(parse_url(url))
    make = options.pop("connection_class", TcpConnection)
    connection = make(
        **options
        | {
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_timeout": None,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
    )
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connection.connect()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return RespConnection(connection, on_answer, on_lost)


class RespClient:
    """A client over one connection, opened on demand and again after a loss.

    Replies come in the order of the commands.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: RespConnection | None = None
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        """The futures of the present connection, in order. A cancelled one keeps its place, as its reply still
        comes."""
        self._connecting: asyncio.Task[None] | None = None
        """Shared by all callers, so that they wait for one attempt together if Valkey does not answer."""

    async def call(self, *parts: bytes) -> Reply:
        """Send a command and wait for its reply.

        Raises redis.RedisError or OSError; the command may have been executed all the same.
        """
        if self._connection is None:
            await self._connected()
        answer = self.ask(*parts)
        if answer is None:
            raise ConnectionResetError(LOST_MESSAGE)
        return await self.answered(answer)

    def ask(self, *parts: bytes) -> asyncio.Future[Reply] | None:
        """Send a command at once and return the future of its reply, to await with `answered` or to drop; None without
        a connection.
        """
        if self._connection is None:
            return None
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._connection.send(pack_command(*parts))
        return answer

    async def answered(self, answer: asyncio.Future[Reply]) -> Reply:
        """Wait for the reply to a command of `ask`. Raises as `call`."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            # Every later command on this connection would wait behind this one.
            self.close()
            raise

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
            self._lose(self._waiting)

    async def _connected(self) -> None:
        """Wait for the connection attempt, or start one. A cancelled caller does not cancel the attempt."""
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._note_connected)
        await asyncio.wait((connecting := self._connecting,))
        if connecting.cancelled():
            raise ConnectionResetError(LOST_MESSAGE)
        connecting.result()

    def _note_connected(self, connecting: asyncio.Task[None]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # marks the exception as retrieved

    async def _connect(self) -> None:
        waiting: deque[asyncio.Future[Reply]] = deque()
        self._connection = await resp_connect(self._url, partial(_hand_out, waiting), partial(self._lose, waiting))
        self._waiting = waiting

    def _lose(self, waiting: deque[asyncio.Future[Reply]]) -> None:
        if waiting is self._waiting:
            self._connection = None
        while waiting:
            answer = waiting.popleft()
            if not answer.done():
                answer.set_exception(ConnectionResetError(LOST_MESSAGE))
                answer.exception()  # marks the exception as retrieved


def _hand_out(waiting: deque[asyncio.Future[Reply]], answer: Reply) -> None:
    future = waiting.popleft()
    if not future.done():
        future.set_result(answer)
