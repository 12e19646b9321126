"""Connections to Valkey for threads that wait: one command out, its answer back, no event loop between.

For what a request waits for in a thread of its own (worker/claims.py): handing a command to the thread of a loop and its answer back
costs two changes of thread, each more than the answer itself. The counterpart for loops is chat.relay.valkey.wire.
"""

from __future__ import annotations

import socket
from typing import Any, cast

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.connection import Connection as TcpConnection
from redis.retry import Retry

from chat.relay.valkey.wire import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, LOST_MESSAGE, Reply, pack_command, read_reply

READ_BYTES = 1 << 18


class SyncConnection:
    """An open connection, for one thread at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        """`connection`: of redis-py, which knows addresses, passwords and TLS; connected."""
        self._connection = connection
        # NOTE: redis-py has no way to give its socket away; the versions in requirements.txt are the ones that we know.
        self._socket = cast(socket.socket, connection._sock)

    def send(self, command: bytes) -> None:
        """Raises OSError; then the line is of no use any more, and neither after what `read` raises."""
        self._socket.sendall(command)

    def read(self) -> Reply:
        """The answer to what was sent, or an ErrorReply. Raises OSError, and ValueError for what is no answer."""
        data = bytearray()
        while (found := read_reply(data, 0)) is None:
            piece = self._socket.recv(READ_BYTES)
            if not piece:
                raise ConnectionResetError(LOST_MESSAGE)
            data += piece
        return found[0]

    def close(self) -> None:
        self._connection.disconnect()


class PendingReply:
    """A command that was sent where a line was idle; if none was, it is sent by whoever waits for its answer, once, in any thread."""

    def __init__(self, lines: SyncPool, command: bytes) -> None:
        self._pool = lines
        self._command = command
        self._connection = lines.take_idle()
        self._error: Exception | None = None
        if self._connection is not None:
            self._send(self._connection)

    def answer(self) -> Reply:
        """The answer, or an ErrorReply. Raises redis.RedisError or OSError, and then nobody knows whether it was done."""
        if self._connection is None:
            self._connection = self._pool.connect()
            self._send(self._connection)
        try:
            if self._error is not None:
                raise self._error
            answer = self._connection.read()
        except (OSError, ValueError) as error:
            self._connection.close()
            self._pool.close()  # what waited beside a lost one is most likely lost too
            raise error if isinstance(error, OSError) else ConnectionResetError(LOST_MESSAGE) from error
        self._pool.keep(self._connection)
        return answer

    def _send(self, line: SyncConnection) -> None:
        try:
            line.send(self._command)
        except OSError as error:
            self._error = error


class SyncPool:
    """As many lines as commands were under way at once; the one used last is taken first. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[SyncConnection] = []

    def call(self, *parts: bytes) -> Reply:
        """As PendingReply.answer."""
        return self.ask(*parts).answer()

    def ask(self, *parts: bytes) -> PendingReply:
        """Send a command without waiting for anything but the socket; `answer` must be called."""
        return PendingReply(self, pack_command(*parts))

    def take_idle(self) -> SyncConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def connect(self) -> SyncConnection:
        """Raises redis.RedisError or OSError."""
        return sync_connect(self._url)

    def keep(self, line: SyncConnection) -> None:
        """A line whose last command has been answered."""
        self._idle.append(line)

    def close(self) -> None:
        """Close the idle lines; those in use are closed or kept by who uses them."""
        while (line := self.take_idle()) is not None:
            line.close()


def sync_connect(url: str) -> SyncConnection:
    """Raises redis.RedisError or OSError."""
    options: dict[str, Any] = dict(parse_url(url))
    make = options.pop("connection_class", TcpConnection)
    timeouts = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": ANSWER_TIMEOUT_S}
    connection = make(**options | timeouts | {"retry": Retry(NoBackoff(), 0), "protocol": 2})
    connection.connect()
    return SyncConnection(connection)
