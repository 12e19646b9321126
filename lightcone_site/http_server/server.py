"""The server, and a stop that lets running answers end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

from daphne.http_protocol import HTTPFactory
from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import defer
from twisted.internet.endpoints import serverFromString
from twisted.logger import globalLogBeginner

from chat.api.server_contract import ADMITTED, STOP, Scope
from lightcone_site.http_server.channel import CLOSE_GRACE_S, BoundedChannel
from lightcone_site.http_server.connections import idle_since
from lightcone_site.http_server.reactor import reactor, twisted_loop
from lightcone_site.http_server.request import BoundedRequest
from lightcone_site.http_server.state import ServerOptions, ServerState
from lightcone_site.limits import HttpLimits


class BoundedFactory(HTTPFactory):
    def __init__(self, server: BoundedServer) -> None:
        super().__init__(server)
        self._state = server.state

    def buildProtocol(self, addr: Any) -> BoundedChannel:
        channel = BoundedChannel(self._state)
        channel.factory = self
        channel.requestFactory = BoundedRequest
        channel.timeOut = None
        return channel


class BoundedServer(Server):
    """Daphne's server with our factory, and a stop that lets running answers end."""

    def __init__(
        self, application: Any, *, endpoints: list[str], limits: HttpLimits, options: ServerOptions, **of_daphne: Any
    ) -> None:
        super().__init__(
            application, endpoints=endpoints, request_buffer_size=2**20, server_name="", verbosity=1, **of_daphne
        )
        self.state = ServerState(limits, options)
        self.ports: list[Any] = []
        self.connections: dict[Any, dict[str, Any]] = {}

    def run(self) -> None:
        self.http_factory = BoundedFactory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=self.state.limits.max_ws_message_bytes,
            maxFramePayloadSize=self.state.limits.max_ws_message_bytes,
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
        if message["type"] == "websocket.send":
            self._note_sent(protocol, len(message.get("bytes") or message.get("text", "").encode()))

    def _note_sent(self, socket: Any, num_bytes: int) -> None:
        """Bound what a WebSocket sends like answers: the transport still reports to the channel it began as."""
        channel = getattr(socket.transport, "producer", None)
        if isinstance(channel, BoundedChannel):
            channel.outgoing.num_written += num_bytes
            channel.check_unsent()

    def create_application(self, protocol: Any, scope: Scope) -> Any:
        if isinstance(protocol, BoundedRequest):
            scope[ADMITTED] = protocol.admitted
        scope[STOP] = self.state.stop
        queue = super().create_application(protocol, scope)
        self.connections[protocol]["application_instance"].add_done_callback(lambda _: self.state.changed.set())
        return queue

    def drain(self) -> defer.Deferred[None]:
        """Let running answers end, then cancel the rest. The reactor waits for the result."""
        return defer.Deferred.fromFuture(asyncio.ensure_future(self._drain(), loop=twisted_loop))

    async def _drain(self) -> None:
        """Stop in five steps.

        1. Announce the stop: load balancers have `drain_delay_s` to notice that this server is not ready. Until then
           requests are answered, with `Connection: close`.
        2. Take no new connections, and no requests on open ones.
        3. Wait `drain_s` for running answers.
        4. Disconnect, so that running answers end as for any lost client.
        5. Let the application settle, and cancel the rest.
        """
        state, options = self.state, self.state.options
        state.stop.is_announced = True
        await asyncio.sleep(options.drain_delay_s)
        state.stop.closing.set()
        for port in self.ports:
            port.stopListening()
        for transport in state.open_connections.all():
            if idle_since(transport) is not None:
                transport.loseConnection()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.drain_s):
                while self._is_busy():
                    state.changed.clear()
                    await state.changed.wait()
        options.on_cut()
        for transport in state.open_connections.all():
            transport.abortConnection()
        if applications := self._applications():
            await asyncio.wait(applications, timeout=CLOSE_GRACE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await options.settle()
        # NOTE: a task that is still pending when the interpreter ends can crash it.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_GRACE_S)

    def _applications(self) -> list[asyncio.Future[None]]:
        """Return the running applications, those of WebSockets too."""
        found = [details.get("application_instance") for details in self.connections.values()]
        return [application for application in found if application is not None and not application.done()]

    def _is_busy(self) -> bool:
        """Return True if an answer is being made or sent, or an admitted request is still arriving."""
        return bool(self._applications()) or any(map(_is_in_use, self.state.open_connections.all()))


def _is_in_use(transport: Any) -> bool:
    """Return True if a connection has a request, or the end of an answer still to send."""
    if not transport.connected or not isinstance(transport.protocol, BoundedChannel):
        return False
    channel = transport.protocol
    return not channel.is_refused and (channel.idle_since is None or transport.disconnecting)


def _drop(_: Any) -> None:
    """Drop an event of Twisted's own log, which adds nothing to ours."""


def serve(
    application: Any,
    *,
    limits: HttpLimits,
    options: ServerOptions,
    host: str = "127.0.0.1",
    port: int = 0,
    socket_fd: int | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `socket_fd`: the parent's listening socket, used instead of host and port."""
    escaped = host.replace(":", "\\:")
    endpoint = f"tcp:port={port}:interface={escaped}:backlog=1024" if socket_fd is None else f"fd:fileno={socket_fd}"
    server = BoundedServer(application, endpoints=[endpoint], limits=limits, options=options, ready_callable=on_ready)
    server.run()
