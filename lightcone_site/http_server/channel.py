"""One connection: its clock, and what it refuses to read. Admission comes before "100 Continue" and the body."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.web import http

from chat.api.server_contract import Admitted
from chat.errors import INTERNAL_MESSAGE, ApiError
from lightcone_site.http_server.budget import BodyRoom
from lightcone_site.http_server.outgoing import Outgoing
from lightcone_site.http_server.reactor import reactor
from lightcone_site.http_server.request import BoundedRequest, text_of
from lightcone_site.http_server.state import ServerState

logger = logging.getLogger(__name__)

CLOSE_GRACE_S = 2.0
"""How long a refused client may take to read the error."""
REQUEST_LINE_EXTRA = 32
"""Bytes of the request line beside the target: method, version and two spaces."""
STOPPING_MESSAGE = "The server is being stopped; please send the request again."


class BoundedChannel(http.HTTPChannel):
    """One connection and its clock: at most one of the header, body and idle times is running."""

    transport: Any
    requests: list[BoundedRequest]
    paused: bool
    """Of Twisted's line reader: while it is set, arriving bytes are kept unread."""

    def __init__(self, state: ServerState) -> None:
        super().__init__()
        self.state = state
        self.limits = state.limits

    def connectionMade(self) -> None:
        self.MAX_LENGTH = max(self.limits.max_header_bytes, self.limits.max_target_bytes + REQUEST_LINE_EXTRA)
        self.totalHeadersSize = self.limits.max_headers_bytes + self.MAX_LENGTH
        self.maxHeaders = self.limits.max_headers + 1
        self.is_refused = False
        self.idle_since: float | None = reactor.seconds()
        """Since when there is no request, on the reactor's clock; None while there is one."""
        self._clock: Any = None
        self._admission: asyncio.Task[Admitted] | None = None
        self.outgoing = Outgoing(self.transport, self.limits, self.state.unread)
        super().connectionMade()
        if self.state.open_connections.admit(self.transport):
            self._start_clock(self.limits.header_timeout)
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._stop_clock()
        self.is_refused = True  # so that an admission that has just ended takes no room for the body
        if self._admission is not None:
            self._admission.cancel()
        self.outgoing.resume()
        self.state.open_connections.release(self.transport)
        super().connectionLost(reason)
        self.state.changed.set()

    # Read.

    def dataReceived(self, data: bytes) -> None:
        if self.is_refused:
            return
        if self.idle_since is not None and data:
            self.idle_since = None
            self._start_clock(self.limits.header_timeout)
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if self.is_refused:
            return
        if self._has_request_line():
            if (
                len(line) > self.limits.max_header_bytes
                or self._receivedHeaderSize + len(line) > self.limits.max_headers_bytes
            ):
                self._refuse_headers()
                return
        elif len(line) > self.limits.max_target_bytes + REQUEST_LINE_EXTRA:
            self.refuse(
                "invalid_value", f"The request target is longer than the limit of {self.limits.max_target_bytes} bytes."
            )
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
        if self.state.stop.closing.is_set():
            self.refuse("overloaded", STOPPING_MESSAGE)
            return
        self._start_clock(self.limits.body_timeout)
        self.max_body_bytes = self.limits.body_bytes(self.path())
        if self.length is not None and self.length > self.max_body_bytes:
            self.refuse_body()
        elif self.length == 0:
            super().allHeadersReceived()
        else:
            self._begin_admission()

    def allContentReceived(self) -> None:
        if self.is_refused:
            return
        self._stop_clock()
        super().allContentReceived()

    def requestDone(self, request: http.Request) -> None:
        self.idle_since = reactor.seconds()
        self._start_clock(self.limits.idle_timeout)
        super().requestDone(request)
        if self.state.stop.closing.is_set() and self.idle_since is not None:
            self.loseConnection()  # after the waiting bytes are sent; the stop waits for that
        self.state.changed.set()

    def path(self) -> str:
        """Return the path of the arriving request, "" as long as it has not arrived."""
        target: bytes = getattr(self, "_path", b"")
        return text_of(target.split(b"?", 1)[0])

    def _has_request_line(self) -> bool:
        return hasattr(self, "_command")

    # Admit a body.

    def _begin_admission(self) -> None:
        """Stop reading until the application has admitted or refused the body."""
        request = self.requests[-1]
        try:
            scope = request.scope(self._command, getattr(self, "_path", b""))
        except UnicodeDecodeError:
            self.refuse("invalid_value", "The request target is malformed.")
            return
        self.paused = True
        self.transport.pauseProducing()
        self._admission = asyncio.ensure_future(self.state.options.admit(scope))
        self._admission.add_done_callback(self._end_admission)

    def _end_admission(self, admission: asyncio.Task[Admitted]) -> None:
        self._admission = None
        if admission.cancelled() or self.is_refused:
            return
        try:
            self._take_body(admission.result())
        except ApiError as error:
            self.refuse_with(error)
        except Exception:
            logger.exception("the admission of a request failed")
            self.refuse("internal_error", INTERNAL_MESSAGE)
        self.paused = False
        self.transport.resumeProducing()
        super().dataReceived(b"")

    def _take_body(self, admitted: Admitted) -> None:
        """Make room for the body and ask the client to send it. Raises ApiError if there is no room."""
        if admitted.max_body_bytes is not None:
            self.max_body_bytes = min(self.max_body_bytes, admitted.max_body_bytes)
        if self.length is not None and self.length > self.max_body_bytes:
            self.refuse_body()
            return
        request = self.requests[-1]
        request.admitted = admitted
        budget = self.state.unknown_bodies if admitted.known is None else self.state.bodies
        request.room_for_body = BodyRoom(budget, admitted.owner)
        request.room_for_body.grow_to(self.length or 0)
        self._start_clock(self.limits.body_timeout)
        super().allHeadersReceived()

    # Refuse.

    def refuse_body(self) -> None:
        self.refuse("request_too_large", f"The request body is larger than the limit of {self.max_body_bytes} bytes.")

    def _refuse_headers(self) -> None:
        most, each, in_all = self.limits.max_headers, self.limits.max_header_bytes, self.limits.max_headers_bytes
        bounds = f"{most} headers, {each} bytes each, {in_all} in all"
        self.refuse("headers_too_large", f"The headers are too large; the limits are {bounds}.")

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse("invalid_value", "The HTTP request is malformed.")

    def refuse(self, code: str, message: str) -> None:
        self.refuse_with(ApiError(code, message))

    def refuse_with(self, error: ApiError) -> None:
        """Answer and close. Discard input for a moment more: a reset would take the answer from the client."""
        if self.is_refused:
            return
        self.is_refused = True
        origin = self.requests[-1].origin() if self.requests and self._has_request_line() else None
        headers, body = self.state.options.render_error(self.path(), origin, error)
        reason = http.RESPONSES.get(error.status, b"Refused").decode("ascii")
        lines = [
            f"HTTP/1.1 {error.status} {reason}",
            *(f"{name}: {value}" for name, value in headers.items()),
            "Connection: close",
            "",
            "",
        ]
        self.transport.write("\r\n".join(lines).encode("latin-1") + body)
        self._stop_clock()
        self.transport.loseWriteConnection()
        self._start_clock(CLOSE_GRACE_S)

    # Write.

    def pauseProducing(self) -> None:
        """Called by the transport when its buffer is full."""
        super().pauseProducing()
        self.outgoing.pause()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.paused:
            self.transport.pauseProducing()
        self.outgoing.resume()

    def stopProducing(self) -> None:
        """Called by the transport when the connection is lost. A WebSocket learns of it only here."""
        super().stopProducing()
        self.outgoing.resume()

    def write(self, data: bytes) -> None:
        self.outgoing.num_written += len(data)
        super().write(data)

    def writeSequence(self, iovec: list[bytes]) -> None:
        self.outgoing.num_written += sum(map(len, iovec))
        super().writeSequence(iovec)

    def check_unsent(self) -> None:
        if self._waitingForTransport:
            self.outgoing.check_size()

    # The clock.

    def _start_clock(self, seconds: float) -> None:
        self._stop_clock()
        self._clock = reactor.callLater(seconds, self._expire)

    def _stop_clock(self) -> None:
        if self._clock is not None and self._clock.active():
            self._clock.cancel()
        self._clock = None

    def _expire(self) -> None:
        self.transport.abortConnection()
