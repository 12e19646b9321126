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

from chat.relay.valkey.wire import ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S, LOST_MESSAGE, Answer, pack_command, read_answer

READ_BYTES = 1 << 18


class Line:
    """An open connection, for one thread at a time."""

    def __init__(self, connection: AbstractConnection) -> None:
        """`connection`: of redis-py, which knows addresses, passwords and TLS; connected."""
        self._connection = connection
        # NOTE: redis-py has no way to give its socket away; the versions in requirements.txt are the ones that we know.
        self._socket = cast(socket.socket, connection._sock)

    def send(self, command: bytes) -> None:
        """Raises OSError; then the line is of no use any more, and neither after what `read` raises."""
        self._socket.sendall(command)

    def read(self) -> Answer:
        """The answer to what was sent, or a Refused. Raises OSError, and ValueError for what is no answer."""
        data = bytearray()
        while (found := read_answer(data, 0)) is None:
            piece = self._socket.recv(READ_BYTES)
            if not piece:
                raise ConnectionResetError(LOST_MESSAGE)
            data += piece
        return found[0]

    def close(self) -> None:
        self._connection.disconnect()


class Asked:
    """A command that was sent where a line was idle; if none was, it is sent by whoever waits for its answer, once, in any thread."""

    def __init__(self, lines: Lines, command: bytes) -> None:
        self._lines = lines
        self._command = command
        self._line = lines.idle_line()
        self._error: Exception | None = None
        if self._line is not None:
            self._send(self._line)

    def answer(self) -> Answer:
        """The answer, or a Refused. Raises redis.RedisError or OSError, and then nobody knows whether it was done."""
        if self._line is None:
            self._line = self._lines.new_line()
            self._send(self._line)
        try:
            if self._error is not None:
                raise self._error
            answer = self._line.read()
        except (OSError, ValueError) as error:
            self._line.close()
            self._lines.close()  # what waited beside a lost one is most likely lost too
            raise error if isinstance(error, OSError) else ConnectionResetError(LOST_MESSAGE) from error
        self._lines.keep(self._line)
        return answer

    def _send(self, line: Line) -> None:
        try:
            line.send(self._command)
        except OSError as error:
            self._error = error


class Lines:
    """As many lines as commands were under way at once; the one used last is taken first. Thread-safe."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Line] = []

    def call(self, *parts: bytes) -> Answer:
        """As Asked.answer."""
        return self.ask(*parts).answer()

    def ask(self, *parts: bytes) -> Asked:
        """Send a command without waiting for anything but the socket; `answer` must be called."""
        return Asked(self, pack_command(*parts))

    def idle_line(self) -> Line | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def new_line(self) -> Line:
        """Raises redis.RedisError or OSError."""
        return line_connect(self._url)

    def keep(self, line: Line) -> None:
        """A line whose last command has been answered."""
        self._idle.append(line)

    def close(self) -> None:
        """Close the idle lines; those in use are closed or kept by who uses them."""
        while (line := self.idle_line()) is not None:
            line.close()


def line_connect(url: str) -> Line:
    """Raises redis.RedisError or OSError."""
    options: dict[str, Any] = dict(parse_url(url))
    make = options.pop("connection_class", TcpConnection)
    timeouts = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": ANSWER_TIMEOUT_S}
    connection = make(**options | timeouts | {"retry": Retry(NoBackoff(), 0), "protocol": 2})
    connection.connect()
    return Line(connection)
