"""Blocking connections to Valkey for threads: send one command, read its reply, without an event loop.

For commands on which a request waits in a thread (worker/claims.py): the detour over an event loop's thread costs two
thread switches, each longer than the reply itself. The counterpart for event loops is chat.relay.valkey.wire.
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
    """An open connection, used by one thread at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Take over a connected redis-py connection; redis-py handles addresses, passwords and TLS."""
        self._connection = connection
        # NOTE: redis-py has no way to give its socket away; the versions in requirements.txt are the ones that we know.
        self._socket = cast(socket.socket, connection._sock)

    def send(self, command: bytes) -> None:
        """Send a packed command. Raises OSError. After an error, here or in `read`, the connection must be closed."""
        self._socket.sendall(command)

    def read(self) -> Reply:
        """Read the reply to the command that was sent. Raises OSError, and ValueError if it is not RESP2."""
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
    """A pending command.

    It is sent at once if a connection is idle, else by `answer`, which must be called once, from any thread.
    """

    def __init__(self, pool: SyncPool, command: bytes) -> None:
        self._pool = pool
        self._command = command
        self._connection = pool.take_idle()
        self._error: Exception | None = None
        if self._connection is not None:
            self._send(self._connection)

    def answer(self) -> Reply:
        """Wait for the reply. Raises redis.RedisError or OSError; the command may have been executed all the same."""
        if self._connection is None:
            self._connection = self._pool.connect()
            self._send(self._connection)
        try:
            if self._error is not None:
                raise self._error
            answer = self._connection.read()
        except (OSError, ValueError) as error:
            self._connection.close()
            self._pool.close()  # the idle connections are most likely lost as well
            raise error if isinstance(error, OSError) else ConnectionResetError(LOST_MESSAGE) from error
        self._pool.keep(self._connection)
        return answer

    def _send(self, connection: SyncConnection) -> None:
        try:
            connection.send(self._command)
        except OSError as error:
            self._error = error


class SyncPool:
    """A pool that has grown to the most commands that were pending at once; last in, first out. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[SyncConnection] = []

    def call(self, *parts: bytes) -> Reply:
        """Send a command and wait for its reply. Raises as PendingReply.answer."""
        return self.ask(*parts).answer()

    def ask(self, *parts: bytes) -> PendingReply:
        """Send a command and return its pending reply, whose `answer` must be called."""
        return PendingReply(self, pack_command(*parts))

    def take_idle(self) -> SyncConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def connect(self) -> SyncConnection:
        """Raises redis.RedisError or OSError."""
        return sync_connect(self._url)

    def keep(self, connection: SyncConnection) -> None:
        """Return a connection to the pool after the reply to its last command."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while (connection := self.take_idle()) is not None:
            connection.close()


def sync_connect(url: str) -> SyncConnection:
    """Raises redis.RedisError or OSError."""
    options: dict[str, Any] = dict(parse_url(url))
    make = options.pop("connection_class", TcpConnection)
    timeouts = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": ANSWER_TIMEOUT_S}
    connection = make(**options | timeouts | {"retry": Retry(NoBackoff(), 0), "protocol": 2})
    connection.connect()
    return SyncConnection(connection)
