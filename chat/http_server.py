"""Our HTTP server: Daphne with bounds. Stock Daphne spools any body to a file, waits for any header, and buffers for any reader.

Kept here, before anything of Django runs: sizes of target, headers and body (413 while it is still arriving), times for headers, body
and idle connections, the number of connections, and the bytes that wait for a reader who does not read; an answer of known length is
sent as fast as it is read instead. All numbers: HttpLimits.
A refused client gets an error in the shape that `describe` gives it, then the connection closes. Framing itself is Twisted's: both
lengths, bad chunks and NUL in a header end there with 400.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import secrets
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import Server, twisted_loop
from daphne.ws_protocol import WebSocketFactory
from twisted.internet import defer
from twisted.internet import reactor as twisted_reactor
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import connectionDone
from twisted.logger import globalLogBeginner
from twisted.web import http

from chat.errors import ApiError

logger = logging.getLogger(__name__)

reactor: Any = twisted_reactor

Describe = Callable[[str, str | None, ApiError], tuple[dict[str, str], bytes]]

LINGER_S = 2.0
REQUEST_LINE_EXTRA = 32
"""Method, version and two spaces beside the target."""


class Limits(Protocol):
    """The numbers this server reads (lightcone_site.limits.HttpLimits); times in seconds."""

    max_body_bytes: int
    max_headers_bytes: int
    max_header_bytes: int
    max_headers: int
    max_target_bytes: int
    header_timeout: int
    body_timeout: int
    idle_timeout: int
    max_connections: int
    stream_buffer_bytes: int
    write_timeout: int
    max_ws_message_bytes: int

    def body_bytes(self, path: str) -> int: ...


class BoundedRequest(WebRequest):
    """One request. Its body stays in memory, within the limit that its channel watches."""

    has_length = False
    """Of the answer: it was made before it is sent, and can wait for its reader."""

    def parseCookies(self) -> None:
        """Nothing here reads cookies."""

    def gotLength(self, length: int | None) -> None:
        self.content = io.BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        channel: BoundedChannel = self.channel
        if channel.is_refused:
            return
        if self.content.tell() + len(data) > channel.max_body_bytes:
            channel.refuse_body()
        else:
            self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Twisted would parse forms here; bodies are the application's business."""
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.split(b"?", 1)[0]
        self.client, self.host = self.channel.getPeer(), self.channel.getHost()
        self.process()

    def handle_reply(self, message: dict[str, Any]) -> None:
        channel: BoundedChannel | None = getattr(self, "channel", None)
        if channel is None:
            super().handle_reply(message)
            return
        if message["type"] == "http.response.start":
            self.has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
        with channel.sending_at_once():
            super().handle_reply(message)
        channel.check_unsent()

    async def room(self) -> None:
        """Wait until the reader has taken what was sent, where the answer can wait. A stream does not: whoever makes it goes on."""
        channel: BoundedChannel | None = getattr(self, "channel", None)
        if self.has_length and channel is not None:
            await channel.room()

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """Daphne's own errors in our shape instead of its HTML page."""
        error = ApiError("internal_error" if status >= 500 else "invalid_value", body)
        headers, payload = self.channel.factory.server.describe(text_of(self.path), self.origin(), error)
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": lines})
        self.handle_reply({"type": "http.response.body", "body": payload})

    def origin(self) -> str | None:
        """The Origin header, as far as headers have arrived."""
        values = self.requestHeaders.getRawHeaders(b"origin")
        return text_of(values[0]) if values else None


class BoundedChannel(http.HTTPChannel):
    """One connection and its clock: at most one of the header, body and idle times is running."""

    factory: BoundedFactory
    transport: Any

    def connectionMade(self) -> None:
        self.limits = self.factory.server.limits
        self.MAX_LENGTH = max(self.limits.max_header_bytes, self.limits.max_target_bytes + REQUEST_LINE_EXTRA)
        self.totalHeadersSize = self.limits.max_headers_bytes + self.MAX_LENGTH
        self.maxHeaders = self.limits.max_headers + 1
        self.is_refused = False
        self._is_idle = True
        self._clock: Any = None
        self._write_clock: Any = None
        self._num_written = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        super().connectionMade()
        if self.factory.admit(self.transport):
            self._start_clock(self.limits.header_timeout)
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._stop_clock()
        self._has_room.set()
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None
        super().connectionLost(reason)

    # Reading.

    def dataReceived(self, data: bytes) -> None:
        if self.is_refused:
            return
        if self._is_idle and data:
            self._is_idle = False
            self._start_clock(self.limits.header_timeout)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if self.is_refused:
            return
        if self._has_request_line():
            if len(line) > self.limits.max_header_bytes or self._receivedHeaderSize + len(line) > self.limits.max_headers_bytes:
                self._refuse_headers()
                return
        elif len(line) > self.limits.max_target_bytes + REQUEST_LINE_EXTRA:
            self.refuse("invalid_value", f"The request target is longer than the limit of {self.limits.max_target_bytes} bytes.")
            return
        super().lineReceived(line)

    def lineLengthExceeded(self, line: bytes) -> None:
        if not self.is_refused:
            self._refuse_headers()

    def headerReceived(self, line: bytes) -> bool:
        if self._receivedHeaderCount >= self.limits.max_headers:
            self._refuse_headers()
            return False
        is_good: bool = super().headerReceived(line)
        return is_good and not self.is_refused

    def allHeadersReceived(self) -> None:
        if self.is_refused:
            return
        self._start_clock(self.limits.body_timeout)
        self.max_body_bytes = self.limits.body_bytes(self.path())
        if self.length is not None and self.length > self.max_body_bytes:
            self.refuse_body()
            return
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        if self.is_refused:
            return
        self._stop_clock()
        super().allContentReceived()

    def requestDone(self, request: http.Request) -> None:
        self._is_idle = True
        self._start_clock(self.limits.idle_timeout)
        super().requestDone(request)

    def path(self) -> str:
        """Of the request that is arriving."""
        target: bytes = getattr(self, "_path", b"")
        return text_of(target.split(b"?", 1)[0])

    def _has_request_line(self) -> bool:
        return hasattr(self, "_command")

    # Refusing.

    def refuse_body(self) -> None:
        self.refuse("request_too_large", f"The request body is larger than the limit of {self.max_body_bytes} bytes.")

    def _refuse_headers(self) -> None:
        limits = self.limits
        bounds = f"{limits.max_headers} headers, {limits.max_header_bytes} bytes each, {limits.max_headers_bytes} in all"
        message = f"The headers are too large; the limits are {bounds}."
        self.refuse("headers_too_large", message)

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse("invalid_value", "The HTTP request is malformed.")

    def refuse(self, code: str, message: str) -> None:
        """Answer and close. What still arrives is thrown away for a moment, as a reset would take the answer from the client."""
        if self.is_refused:
            return
        self.is_refused = True
        error = ApiError(code, message)
        headers, body = self.factory.server.describe(*self._asked(), error)
        reason = http.RESPONSES.get(error.status, b"Refused").decode("ascii")
        lines = [f"HTTP/1.1 {error.status} {reason}", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close", "", ""]
        self.transport.write("\r\n".join(lines).encode("latin-1") + body)
        self._stop_clock()
        self.transport.loseWriteConnection()
        self._start_clock(LINGER_S)

    def _asked(self) -> tuple[str, str | None]:
        """Path and origin of the request that is arriving, "" and None where they have not arrived."""
        return self.path(), self.requests[-1].origin() if self.requests and self._has_request_line() else None

    # Writing.

    def pauseProducing(self) -> None:
        """The transport's buffer is full: the reader has `write_timeout` to take something of it."""
        super().pauseProducing()
        self._has_room.clear()
        if self._write_clock is None:
            self._watch_reader(self._num_sent())

    def resumeProducing(self) -> None:
        super().resumeProducing()
        self._has_room.set()
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None

    async def room(self) -> None:
        """Wait until the transport's buffer is not full, or nobody reads any more."""
        await self._has_room.wait()

    def write(self, data: bytes) -> None:
        self._num_written += len(data)
        super().write(data)

    def writeSequence(self, iovec: list[bytes]) -> None:
        self._num_written += sum(map(len, iovec))
        super().writeSequence(iovec)

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

    def check_unsent(self) -> None:
        """Give up on a reader for whom too many bytes are waiting."""
        if self._waitingForTransport and self._num_unsent() > self.limits.stream_buffer_bytes:
            self._give_up()

    def _num_unsent(self) -> int:
        # Twisted has no public count; these three are its transport's whole buffer.
        transport = self.transport
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def _num_sent(self) -> int:
        return self._num_written - self._num_unsent()

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

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = reactor.callLater(seconds, self._expire)

    def _stop_clock(self) -> None:
        if self._clock is not None and self._clock.active():
            self._clock.cancel()
        self._clock = None

    def _expire(self) -> None:
        self.transport.abortConnection()


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


def text_of(value: bytes) -> str:
    return value.decode("latin-1")


def plain_error(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an error, the same for all paths; for servers without dialects."""
    body = json.dumps({"error": error.described(), "message": error.message}).encode()
    return {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": secrets.token_hex(16)}, body


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
