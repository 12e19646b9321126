"""What a connection gives back when it ends."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from lightcone_site.http_server.options import ServerOptions
from lightcone_site.http_server.server import BoundedFactory, BoundedServer
from lightcone_site.limits import HttpLimits


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Never asked here."""


async def test_a_body_whose_connection_ends_as_it_is_let_in_takes_no_room() -> None:
    """Its room was taken after all was given back, for ever."""
    server = BoundedServer(application, endpoints=["tcp:0"], limits=HttpLimits(), options=ServerOptions())
    channel = BoundedFactory(server).buildProtocol(None)
    channel.makeConnection(StringTransport())
    channel.dataReceived(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
    admission = channel._admission
    assert admission is not None
    await asyncio.sleep(0)
    assert admission.done(), "and what is to be done then comes next"
    channel.connectionLost(Failure(ConnectionLost()))
    await asyncio.sleep(0)
    assert server.state.bodies.num_taken == 0
