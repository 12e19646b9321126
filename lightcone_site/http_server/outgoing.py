"""The bytes that wait to be sent on a connection: how many, for how long, and when they go out."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import struct
import termios
from collections.abc import Iterator
from typing import Any

from lightcone_site.http_server.reactor import reactor
from lightcone_site.limits import HttpLimits

logger = logging.getLogger(__name__)


class Unread:
    """The bytes that wait for all slow readers together. Above the limit the reader with the most is disconnected."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._of: dict[Outgoing, int] = {}

    def note(self, outgoing: Outgoing, num_bytes: int) -> None:
        self.forget(outgoing)
        self._of[outgoing] = num_bytes
        self._num_bytes += num_bytes
        while self._num_bytes > self._max_bytes:
            furthest = max(self._of, key=self._of.__getitem__)
            self.forget(furthest)
            furthest.give_up()

    def forget(self, outgoing: Outgoing) -> None:
        self._num_bytes -= self._of.pop(outgoing, 0)


class Outgoing:
    """The bytes that one reader has not taken yet. `num_written`: all that were ever written to the transport."""

    def __init__(self, transport: Any, limits: HttpLimits, unread: Unread) -> None:
        self.transport, self.limits, self.unread = transport, limits, unread
        self.num_written = 0
        self._write_clock: Any = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pause(self) -> None:
        """Note that the buffer is full: the reader must now take `min_read_bytes` in each `write_timeout`."""
        self._has_room.clear()
        if self._write_clock is None:
            self._watch_reader()

    def resume(self) -> None:
        """Note that the buffer has room again, or that the connection is lost."""
        self._has_room.set()
        self.unread.forget(self)
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None

    async def room(self) -> None:
        """Wait until the transport's buffer has room, or the connection is lost."""
        await self._has_room.wait()

    @contextlib.contextmanager
    def sending_at_once(self) -> Iterator[None]:
        """Write to the socket at the end of the block; only the bytes that it does not take wait for the reactor.

        The reactor would watch the socket, write after a turn, and end the watch: three system calls a frame.
        """
        transport = self.transport
        starts: list[bool] = []
        transport.startWriting = lambda: starts.append(True)
        try:
            yield
        finally:
            del transport.startWriting
            if (
                starts
                and transport.connected
                and (transport.disconnecting or transport.doWrite() is not None or self._num_unsent())
            ):
                transport.startWriting()  # a lost connection is found there too

    def check_size(self) -> None:
        """Disconnect a reader for whom too many bytes wait."""
        num_unsent = self._num_unsent()
        if num_unsent > self.limits.stream_buffer_bytes:
            self.give_up()
        else:
            self.unread.note(self, num_unsent)

    def _num_unsent(self) -> int:
        # Twisted has no public count; the transport's buffer consists of these three.
        transport = self.transport
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def _num_taken(self) -> int:
        """Count the bytes that have reached the reader's machine, without those in this system's socket buffer."""
        return self.num_written - self._num_unsent() - _num_in_socket(self.transport)

    def _watch_reader(self) -> None:
        self._write_clock = reactor.callLater(self.limits.write_timeout, self._check_reader, self._num_taken())

    def _check_reader(self, num_taken: int) -> None:
        self._write_clock = None
        if self._num_taken() - num_taken < self.limits.min_read_bytes:
            self.give_up()
        else:
            self._watch_reader()

    def give_up(self) -> None:
        logger.info("Gave up on a client that does not read its answer; %d bytes were waiting", self._num_unsent())
        self.transport.abortConnection()


def _num_in_socket(transport: Any) -> int:
    """Return the number of unconfirmed bytes in the socket; 0 on systems that do not report it."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(transport.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    except (OSError, ValueError, AttributeError):
        return 0
    return count
