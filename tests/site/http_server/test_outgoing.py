"""Readers that take too little, or hold too much unread together, are disconnected; slow ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.task import Clock

from lightcone_site.http_server import outgoing as module
from lightcone_site.http_server.outgoing import Outgoing, Unread
from lightcone_site.limits import HttpLimits

LIMITS = replace(HttpLimits(), stream_buffer_bytes=1_000, max_unread_bytes=1_500, write_timeout=60, min_read_bytes=100)


class Transport:
    """A transport with the fields of Twisted's buffer."""

    offset = 0
    _tempDataLen = 0

    def __init__(self) -> None:
        self.dataBuffer = b""
        self.is_open = True

    def abortConnection(self) -> None:
        self.is_open = False


class Reader:
    """The reader of one connection with a full buffer."""

    def __init__(self, unread: Unread) -> None:
        self.transport = Transport()
        self.outgoing = Outgoing(self.transport, LIMITS, unread)

    def write(self, num_bytes: int) -> None:
        self.transport.dataBuffer += b"x" * num_bytes
        self.outgoing.num_written += num_bytes
        self.outgoing.pause()
        self.outgoing.check_size()

    def read(self, num_bytes: int) -> None:
        self.transport.dataBuffer = self.transport.dataBuffer[num_bytes:]

    @property
    def is_served(self) -> bool:
        return self.transport.is_open


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "reactor", clock)
    return clock


@pytest.fixture
def unread() -> Unread:
    return Unread(LIMITS.max_unread_bytes)


def test_a_reader_below_the_minimum_rate_is_disconnected(clock: Clock, unread: Unread) -> None:
    """Readers of one byte a second held megabytes each for any time."""
    reader = Reader(unread)
    reader.write(900)
    for _ in range(60):
        reader.read(1)
        clock.advance(1)
    assert not reader.is_served


def test_a_slow_reader_at_the_minimum_rate_is_served(clock: Clock, unread: Unread) -> None:
    reader = Reader(unread)
    reader.write(900)
    for _ in range(4):
        reader.read(100)
        clock.advance(60)
    assert reader.is_served


def test_over_the_limit_of_all_unread_bytes_the_slowest_reader_is_disconnected(clock: Clock, unread: Unread) -> None:
    """Finished answers were not counted by the limit of running requests."""
    behind, further, little = (Reader(unread) for _ in range(3))
    behind.write(700)
    further.write(750)
    assert (behind.is_served, further.is_served) == (True, True)
    little.write(60)
    assert (behind.is_served, further.is_served, little.is_served) == (True, False, True)


def test_a_reader_that_has_caught_up_is_not_counted(clock: Clock, unread: Unread) -> None:
    first, second = Reader(unread), Reader(unread)
    first.write(900)
    first.outgoing.resume()
    second.write(900)
    assert (first.is_served, second.is_served) == (True, True)


def test_a_reader_over_its_own_limit_is_disconnected(clock: Clock, unread: Unread) -> None:
    reader = Reader(unread)
    reader.write(1_001)
    assert not reader.is_served
