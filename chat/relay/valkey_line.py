"""Connections to Valkey for threads that wait: one command out, its answer back, no event loop between.

For what a request waits for in a thread of its own (chat.relay.claims): handing a command to the thread of a loop and its answer back
costs two changes of thread, each more than the answer itself. The counterpart for loops is chat.relay.valkey_wire.
"""

from __future__ import annotations

import socket
from typing import Any

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.connection import Connection as TcpConnection
from redis.retry import Retry

from chat.relay.valkey_wire import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, LOST_MESSAGE, Answer, pack_command, read_answer

READ_BYTES = 1 << 18


class Line:
    """An open connection, for one thread at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        """`connection`: of redis-py, which knows addresses, passwords and TLS; connected."""
        self._connection = connection
        # NOTE: redis-py has no way to give its socket away; the versions in requirements.txt are the ones that we know.
        self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]

    def call(self, *parts: bytes) -> Answer:
        """The answer, or a Refused. Raises OSError, and ValueError for what is no answer; then the line is of no use any more."""
        self._socket.sendall(pack_command(*parts))
        data = bytearray()
        while (found := read_answer(data, 0)) is None:
            piece = self._socket.recv(READ_BYTES)
            if not piece:
                raise ConnectionResetError(LOST_MESSAGE)
            data += piece
        return found[0]

    def close(self) -> None:
        self._connection.disconnect()


class Lines:
    """As many lines as threads have called at once; the one used last is taken first. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Line] = []

    def call(self, *parts: bytes) -> Answer:
        """The answer, or a Refused. Raises redis.RedisError or OSError, and then nobody knows whether it was done."""
        try:
            line = self._idle.pop()
        except IndexError:
            line = line_connect(self._url)
        try:
            answer = line.call(*parts)
        except (OSError, ValueError) as error:
            line.close()
            self.close()  # what waited beside a lost one is most likely lost too
            raise error if isinstance(error, OSError) else ConnectionResetError(LOST_MESSAGE) from error
        self._idle.append(line)
        return answer

    def close(self) -> None:
        """Close the idle lines; those in use are closed or kept by who uses them."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return


def line_connect(url: str) -> Line:
    """Raises redis.RedisError or OSError."""
    options: dict[str, Any] = dict(parse_url(url))
    make = options.pop("connection_class", TcpConnection)
    timeouts = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": ANSWER_TIMEOUT_S}
    connection = make(**options | timeouts | {"retry": Retry(NoBackoff(), 0), "protocol": 2})
    connection.connect()
    return Line(connection)
