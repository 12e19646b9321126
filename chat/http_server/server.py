"""The server: the connections that are open, and a stop that lets running answers end."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any, cast

from daphne.http_protocol import HTTPFactory
from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import defer
from twisted.internet.endpoints import serverFromString
from twisted.logger import globalLogBeginner

from chat.http_server.bounds import Describe, Limits, plain_error
from chat.http_server.channel import LINGER_S, BoundedChannel
from chat.http_server.reactor import reactor, twisted_loop
from chat.http_server.request import BoundedRequest


class BoundedFactory(HTTPFactory):
    """Makes channels, and counts the connections that are open, WebSockets included."""

    def __init__(self, server: BoundedServer) -> None:
        super().__init__(server)
        self.server = server
        self._transports: weakref.WeakSet[Any] = weakref.WeakSet()

    def buildProtocol(self, addr: Any) -> BoundedChannel:
        channel = BoundedChannel()
        channel.factory = self
        channel.requestFactory = BoundedRequest
        channel.timeOut = None
        return channel

    def admit(self, transport: Any) -> bool:
        """Count a new connection; False above the limit."""
        limit = self.server.limits.max_connections
        if len(self._transports) >= limit:
            self._transports = weakref.WeakSet(open_one for open_one in self._transports if open_one.connected)
        if len(self._transports) >= limit:
            return False
        self._transports.add(transport)
        return True

    def hang_up(self) -> None:
        """Close every open connection at once."""
        for transport in list(self._transports):
            transport.abortConnection()


class BoundedServer(Server):
    """Daphne's server with our factory, and a stop that lets running answers end."""

    def __init__(
        self, application: Any, *, endpoints: list[str], limits: Limits, drain_s: float, describe: Describe, **options: Any
    ) -> None:
        super().__init__(application, endpoints=endpoints, request_buffer_size=2**20, server_name="", verbosity=1, **options)
        self.limits = limits
        self.drain_s = drain_s
        self.describe = describe
        self.ports: list[Any] = []
        self.connections: dict[Any, dict[str, Any]] = {}

    def run(self) -> None:
        """Listen and serve until the reactor stops."""
        self.http_factory = BoundedFactory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=self.limits.max_ws_message_bytes,
            maxFramePayloadSize=self.limits.max_ws_message_bytes,
        )
        globalLogBeginner.beginLoggingTo([cast(Any, _drop)], redirectStandardIO=False, discardBuffer=True)
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        for description in self.endpoints:
            listener = serverFromString(reactor, description).listen(self.http_factory)
            listener.addCallback(self.listen_success)
            listener.addErrback(self.listen_error)
            self.listeners.append(listener)
        asyncio.set_event_loop(twisted_loop)
        reactor.addSystemEventTrigger("before", "shutdown", self.drain)
        if not self.abort_start:
            if self.ready_callable:
                self.ready_callable()
            reactor.run(installSignalHandlers=self.signal_handlers)

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self.ports.append(port)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        if isinstance(protocol, BoundedRequest):
            await protocol.room()
        await super().handle_reply(protocol, message)

    def drain(self) -> defer.Deferred[None]:
        """Stop listening, give running answers `drain_s` to end, then cancel what is left. The reactor waits for the result."""
        for port in self.ports:
            port.stopListening()
        return defer.Deferred.fromFuture(asyncio.ensure_future(self._drain(), loop=twisted_loop))

    async def _drain(self) -> None:
        """1. Wait for running answers.  2. Hang up, so that what still runs ends as for any lost client.  3. Cancel the rest."""
        running = [
            details["application_instance"]
            for protocol, details in self.connections.items()
            if "application_instance" in details and isinstance(protocol, BoundedRequest)
        ]
        if running:
            await asyncio.wait(running, timeout=self.drain_s)
        self.http_factory.hang_up()
        applications = [details["application_instance"] for details in self.connections.values() if "application_instance" in details]
        if applications:
            await asyncio.wait(applications, timeout=LINGER_S)
        # NOTE: a task that is still pending when the interpreter ends can crash it.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LINGER_S)


def _drop(_: Any) -> None:
    """Twisted's own log says nothing that ours does not."""


def serve(
    application: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: Limits,
    socket_fd: int | None = None,
    drain_s: float = 30.0,
    on_ready: Callable[[], None] | None = None,
    describe: Describe = plain_error,
) -> None:
    """Serve until SIGINT or SIGTERM. `socket_fd`: a listening socket made by the parent, used instead of host and port. `describe`: what
    the error of a path and an origin looks like, as headers and body.
    """
    escaped = host.replace(":", "\\:")
    endpoint = f"tcp:port={port}:interface={escaped}:backlog=1024" if socket_fd is None else f"fd:fileno={socket_fd}"
    server = BoundedServer(application, endpoints=[endpoint], limits=limits, drain_s=drain_s, describe=describe, ready_callable=on_ready)
    server.run()
