"""What waits to be sent on a connection: how much, for how long, and when it goes out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from chat.http_server.bounds import Limits
from chat.http_server.reactor import reactor

logger = logging.getLogger(__name__)


class Outgoing:
    """The bytes that a reader has not taken yet. `num_written`: all that were ever given to the transport."""

    def __init__(self, transport: Any, limits: Limits) -> None:
        self.transport, self.limits = transport, limits
        self.num_written = 0
        self._write_clock: Any = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pause(self) -> None:
        """The transport's buffer is full: the reader has `write_timeout` to take something of it."""
        self._has_room.clear()
        if self._write_clock is None:
            self._watch_reader(self._num_sent())

    def resume(self) -> None:
        """The buffer is not full any more, or nobody reads any more."""
        self._has_room.set()
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
            if wishes and transport.connected and (transport.disconnecting or transport.doWrite() is not None or self._num_unsent()):
                transport.startWriting()  # a lost connection is found there too

    def check_size(self) -> None:
        """Give up on a reader for whom too many bytes are waiting."""
        if self._num_unsent() > self.limits.stream_buffer_bytes:
            self._give_up()

    def _num_unsent(self) -> int:
        # Twisted has no public count; these three are its transport's whole buffer.
        transport = self.transport
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def _num_sent(self) -> int:
        return self.num_written - self._num_unsent()

    def _watch_reader(self, num_sent: int) -> None:
        self._write_clock = reactor.callLater(self.limits.write_timeout, self._check_reader, num_sent)

    def _check_reader(self, num_sent: int) -> None:
        self._write_clock = None
        if self._num_sent() <= num_sent:
            self._give_up()
        else:
            self._watch_reader(self._num_sent())

    def _give_up(self) -> None:
        logger.info("Gave up on a client that does not read its answer; %d bytes were waiting", self._num_unsent())
        self.transport.abortConnection()
