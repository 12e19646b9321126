"""The server: what its connections share, and a stop that lets running answers end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from daphne.http_protocol import HTTPFactory
from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import defer
from twisted.internet.endpoints import serverFromString
from twisted.logger import globalLogBeginner

from chat.api.server_contract import ADMITTED, STOP, Scope, Stop
from engine.memory import HeapTrimmer
from lightcone_site.http_server.bounds import Admit, Describe, Limits, admit_anyone, no_proxy, plain_error
from lightcone_site.http_server.budget import BodiesBudget
from lightcone_site.http_server.channel import CLOSE_GRACE_S, BoundedChannel
from lightcone_site.http_server.connections import Connections, idle_since
from lightcone_site.http_server.outgoing import Unread
from lightcone_site.http_server.reactor import reactor, twisted_loop
from lightcone_site.http_server.request import BoundedRequest

HEAP_RELEASE_DELAY_S = 5.0
STRANGERS_PART = 8
"""Bodies of those whom the application does not know may take so small a part of what all bodies may, beside that."""


async def nothing_to_settle() -> None:
    """Of an application that leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class Manners:
    """How a server behaves to whom. `admit`: who may send a body; `describe`: what the error of a path and an origin looks like, as headers
    and body; `is_proxy`: addresses that many clients come through; `on_cut` is called before running answers are cut, `settle`
    after that, with a little time for what they leave behind. Times in seconds.
    """

    admit: Admit = admit_anyone
    describe: Describe = plain_error
    is_proxy: Callable[[str], bool] = no_proxy
    drain_s: float = 30.0
    drain_delay_s: float = 0.0
    on_cut: Callable[[], None] = lambda: None
    settle: Callable[[], Awaitable[None]] = nothing_to_settle


class BoundedFactory(HTTPFactory):
    """Makes channels."""

    def __init__(self, server: BoundedServer) -> None:
        super().__init__(server)
        self.server = server

    def buildProtocol(self, addr: Any) -> BoundedChannel:
        channel = BoundedChannel()
        channel.factory = self
        channel.requestFactory = BoundedRequest
        channel.timeOut = None
        return channel


class BoundedServer(Server):
    """Daphne's server with our factory, and a stop that lets running answers end."""

    def __init__(
        self, application: Any, *, endpoints: list[str], limits: Limits, manners: Manners, **options: Any
    ) -> None:
        super().__init__(
            application, endpoints=endpoints, request_buffer_size=2**20, server_name="", verbosity=1, **options
        )
        self.limits = limits
        self.manners = manners
        self.admit, self.describe = manners.admit, manners.describe
        self.open_connections = Connections(limits, manners.is_proxy)
        heap = HeapTrimmer(HEAP_RELEASE_DELAY_S)
        self.bodies = BodiesBudget(limits.max_bodies_bytes, heap.schedule)
        self.bodies_of_strangers = BodiesBudget(limits.max_bodies_bytes // STRANGERS_PART, heap.schedule)
        self.unread = Unread(limits.max_unread_bytes)
        self.stop_state = Stop()
        self.changed = asyncio.Event()
        """Set when an answer or a connection has ended."""
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
        if message["type"] == "websocket.send":
            self._note_sent(protocol, len(message.get("bytes") or message.get("text", "").encode()))

    def _note_sent(self, socket: Any, num_bytes: int) -> None:
        """What a WebSocket sends is bounded as answers are: the channel that it began as still hears how its transport fares."""
        channel = getattr(socket.transport, "producer", None)
        if isinstance(channel, BoundedChannel):
            channel.outgoing.num_written += num_bytes
            channel.check_unsent()

    def create_application(self, protocol: Any, scope: Scope) -> Any:
        if isinstance(protocol, BoundedRequest):
            scope[ADMITTED] = protocol.admitted
        scope[STOP] = self.stop_state
        queue = super().create_application(protocol, scope)
        self.connections[protocol]["application_instance"].add_done_callback(lambda _: self.changed.set())
        return queue

    def drain(self) -> defer.Deferred[None]:
        """Let running answers end, then cancel what is left. The reactor waits for the result."""
        return defer.Deferred.fromFuture(asyncio.ensure_future(self._drain(), loop=twisted_loop))

    async def _drain(self) -> None:
        """1. Announce it: whoever balances load has `drain_delay_s` to see that this server is not ready any more. Until then it answers,
        and closes each connection after an answer that says so.  2. Take nothing new: neither connections nor requests on open ones.
        3. Wait `drain_s` for running answers.  4. Hang up, so that what still runs ends as for any lost client.  5. Let the application
        settle, and cancel the rest.
        """
        self.stop_state.is_announced = True
        await asyncio.sleep(self.manners.drain_delay_s)
        self.stop_state.closing.set()
        for port in self.ports:
            port.stopListening()
        for transport in self.open_connections.all():
            if idle_since(transport) is not None:
                transport.loseConnection()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.manners.drain_s):
                while self._is_busy():
                    self.changed.clear()
                    await self.changed.wait()
        self.manners.on_cut()
        for transport in self.open_connections.all():
            transport.abortConnection()
        if applications := self._applications():
            await asyncio.wait(applications, timeout=CLOSE_GRACE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self.manners.settle()
        # NOTE: a task that is still pending when the interpreter ends can crash it.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_GRACE_S)

    def _applications(self) -> list[asyncio.Future[None]]:
        """What is being answered, on WebSockets too."""
        found = [details.get("application_instance") for details in self.connections.values()]
        return [application for application in found if application is not None and not application.done()]

    def _is_busy(self) -> bool:
        """Whether an answer is being made or sent, or the rest of a request that was let in is coming."""
        return bool(self._applications()) or any(map(_is_in_use, self.open_connections.all()))


def _is_in_use(transport: Any) -> bool:
    """Whether a request goes on there, or the end of its answer is still to be sent."""
    if not transport.connected or not isinstance(transport.protocol, BoundedChannel):
        return False
    channel = transport.protocol
    return not channel.is_refused and (channel.idle_since is None or transport.disconnecting)


def _drop(_: Any) -> None:
    """Twisted's own log says nothing that ours does not."""


def serve(
    application: Any,
    *,
    limits: Limits,
    manners: Manners,
    host: str = "127.0.0.1",
    port: int = 0,
    socket_fd: int | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. `socket_fd`: a listening socket made by the parent, used instead of host and port."""
    escaped = host.replace(":", "\\:")
    endpoint = f"tcp:port={port}:interface={escaped}:backlog=1024" if socket_fd is None else f"fd:fileno={socket_fd}"
    server = BoundedServer(application, endpoints=[endpoint], limits=limits, manners=manners, ready_callable=on_ready)
    server.run()
