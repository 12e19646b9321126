"""A connection that ends releases its share of the body budget."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from lightcone_site.http_server.server import BoundedFactory, BoundedServer
from lightcone_site.limits import HttpLimits
from tests.chat.server_options import server_options


async def application(scope: Any, receive: Any, send: Any) -> None:
    """The application; these tests never call it."""


async def test_a_connection_lost_during_admission_takes_no_room_for_its_body() -> None:
    """Its room was taken after the release and stayed taken."""
    server = BoundedServer(application, endpoints=["tcp:0"], limits=HttpLimits(), options=server_options())
    channel = BoundedFactory(server).buildProtocol(None)
    channel.makeConnection(StringTransport())
    channel.dataReceived(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
    admission = channel._admission
    assert admission is not None
    await asyncio.sleep(0)
    assert admission.done(), "its callback has not run yet"
    channel.connectionLost(Failure(ConnectionLost()))
    await asyncio.sleep(0)
    assert server.state.bodies.num_taken == 0
