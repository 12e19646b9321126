"""What waits to be sent on a connection: how much, for how long, and when it goes out.

An answer may have ended long before its reader has it, so these bytes are bounded by themselves: those of one reader, those of all
together, and the time in which a reader takes a least amount.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import struct
import termios
from collections.abc import Iterator
from typing import Any

from lightcone_site.http_server.bounds import Limits
from lightcone_site.http_server.reactor import reactor

logger = logging.getLogger(__name__)


class Unread:
    """What waits for all readers who are behind together. Above the limit the one who is furthest behind is given up."""

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
    """The bytes that a reader has not taken yet. `num_written`: all that were ever given to the transport."""

    def __init__(self, transport: Any, limits: Limits, unread: Unread) -> None:
        self.transport, self.limits, self.unread = transport, limits, unread
        self.num_written = 0
        self._write_clock: Any = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pause(self) -> None:
        """The transport's buffer is full: in each `write_timeout` the reader has to take `min_read_bytes` of it."""
        self._has_room.clear()
        if self._write_clock is None:
            self._watch_reader()

    def resume(self) -> None:
        """The buffer is not full any more, or nobody reads any more."""
        self._has_room.set()
        self.unread.forget(self)
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None

    async def room(self) -> None:
        """Wait until the transport's buffer is not full, or nobody reads any more."""
        await self._has_room.wait()

    @contextlib.contextmanager
    def sending_at_once(self) -> Iterator[None]:
        """What is written within goes out at its end, and only what the socket does not take waits for the reactor.

        The reactor would watch the socket, take a turn, write and watch it no more: three system calls for each frame of a stream.
        """
        transport = self.transport
        wishes: list[bool] = []
        transport.startWriting = lambda: wishes.append(True)
        try:
            yield
        finally:
            del transport.startWriting
            if (
                wishes
                and transport.connected
                and (transport.disconnecting or transport.doWrite() is not None or self._num_unsent())
            ):
                transport.startWriting()  # a lost connection is found there too

    def check_size(self) -> None:
        """Give up on a reader for whom too many bytes are waiting."""
        num_unsent = self._num_unsent()
        if num_unsent > self.limits.stream_buffer_bytes:
            self.give_up()
        else:
            self.unread.note(self, num_unsent)

    def _num_unsent(self) -> int:
        # Twisted has no public count; these three are its transport's whole buffer.
        transport = self.transport
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def _num_taken(self) -> int:
        """What has reached the reader's machine, as far as this system knows: its own buffer may hold megabytes that have not."""
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
    """The bytes that the system has taken to send and whose arrival nobody has confirmed; 0 where it does not tell."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(transport.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    except (OSError, ValueError, AttributeError):
        return 0
    return count
