"""One connection: its clock, what it refuses to read, and how it says so.

A body comes only after its request was looked at: headers first, then the application's word (`Admit`), then room for it in the budget of
all bodies, and only then "100 Continue" and the body itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from twisted.internet.protocol import connectionDone
from twisted.web import http

from chat.api.server_contract import Admitted
from chat.errors import INTERNAL_MESSAGE, ApiError
from lightcone_site.http_server.bounds import Describe
from lightcone_site.http_server.budget import BodyRoom
from lightcone_site.http_server.outgoing import Outgoing
from lightcone_site.http_server.reactor import reactor
from lightcone_site.http_server.request import BoundedRequest, text_of

if TYPE_CHECKING:
    from lightcone_site.http_server.server import BoundedFactory, BoundedServer

logger = logging.getLogger(__name__)

CLOSE_GRACE_S = 2.0
"""How long a client may take to read why it was refused."""
REQUEST_LINE_EXTRA = 32
"""Method, version and two spaces beside the target."""
STOPPING_MESSAGE = "The server is being stopped; please send the request again."


class BoundedChannel(http.HTTPChannel):
    """One connection and its clock: at most one of the header, body and idle times is running.

    `idle_since`: since when no request goes on, on the reactor's clock; None while one does.
    """

    factory: BoundedFactory
    transport: Any
    requests: list[BoundedRequest]
    paused: bool
    """Of Twisted's reader of lines: what arrives is kept, and read when this is over."""

    @property
    def server(self) -> BoundedServer:
        return self.factory.server

    @property
    def describe(self) -> Describe:
        return self.server.describe

    def connectionMade(self) -> None:
        self.limits = self.server.limits
        self.MAX_LENGTH = max(self.limits.max_header_bytes, self.limits.max_target_bytes + REQUEST_LINE_EXTRA)
        self.totalHeadersSize = self.limits.max_headers_bytes + self.MAX_LENGTH
        self.maxHeaders = self.limits.max_headers + 1
        self.is_refused = False
        self.idle_since: float | None = reactor.seconds()
        self._clock: Any = None
        self._admission: asyncio.Task[Admitted] | None = None
        self.outgoing = Outgoing(self.transport, self.limits, self.server.unread)
        super().connectionMade()
        if self.server.open_connections.admit(self.transport):
            self._start_clock(self.limits.header_timeout)
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._stop_clock()
        self.is_refused = True  # an admission that has just ended takes no room for a body that cannot come
        if self._admission is not None:
            self._admission.cancel()
        self.outgoing.resume()
        self.server.open_connections.release(self.transport)
        super().connectionLost(reason)
        self.server.changed.set()

    # Reading.

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
        if self.server.stop_state.closing.is_set():
            self.refuse("overloaded", STOPPING_MESSAGE)
            return
        self._start_clock(self.limits.body_timeout)
        self.max_body_bytes = self.limits.body_bytes(self.path())
        if self.length is not None and self.length > self.max_body_bytes:
            self.refuse_body()
        elif self.length == 0:
            super().allHeadersReceived()
        else:
            self._ask_for_body()

    def allContentReceived(self) -> None:
        if self.is_refused:
            return
        self._stop_clock()
        super().allContentReceived()

    def requestDone(self, request: http.Request) -> None:
        self.idle_since = reactor.seconds()
        self._start_clock(self.limits.idle_timeout)
        super().requestDone(request)
        if self.server.stop_state.closing.is_set() and self.idle_since is not None:
            self.loseConnection()  # what waits to be sent goes out first, and the stop waits for that
        self.server.changed.set()

    def path(self) -> str:
        """Of the request that is arriving."""
        target: bytes = getattr(self, "_path", b"")
        return text_of(target.split(b"?", 1)[0])

    def _has_request_line(self) -> bool:
        return hasattr(self, "_command")

    # Letting a body in.

    def _ask_for_body(self) -> None:
        """Read no more until the application has said whether the body may come."""
        request = self.requests[-1]
        try:
            scope = request.scope(self._command, getattr(self, "_path", b""))
        except UnicodeDecodeError:
            self.refuse("invalid_value", "The request target is malformed.")
            return
        self.paused = True
        self.transport.pauseProducing()
        self._admission = asyncio.ensure_future(self.server.admit(scope))
        self._admission.add_done_callback(self._answer_body)

    def _answer_body(self, admission: asyncio.Task[Admitted]) -> None:
        self._admission = None
        if admission.cancelled() or self.is_refused:
            return
        try:
            self._let_in(admission.result())
        except ApiError as error:
            self.refuse_with(error)
        except Exception:
            logger.exception("A request could not be looked at")
            self.refuse("internal_error", INTERNAL_MESSAGE)
        self.paused = False
        self.transport.resumeProducing()
        super().dataReceived(b"")

    def _let_in(self, admitted: Admitted) -> None:
        """Make room for the body, and have it sent. Raises ApiError where there is none."""
        if admitted.max_body_bytes is not None:
            self.max_body_bytes = min(self.max_body_bytes, admitted.max_body_bytes)
        if self.length is not None and self.length > self.max_body_bytes:
            self.refuse_body()
            return
        request = self.requests[-1]
        request.admitted = admitted
        budget = self.server.bodies_of_strangers if admitted.known is None else self.server.bodies
        request.room_for_body = BodyRoom(budget, admitted.owner)
        request.room_for_body.grow_to(self.length or 0)
        self._start_clock(self.limits.body_timeout)
        super().allHeadersReceived()

    # Refusing.

    def refuse_body(self) -> None:
        self.refuse("request_too_large", f"The request body is larger than the limit of {self.max_body_bytes} bytes.")

    def _refuse_headers(self) -> None:
        limits = self.limits
        bounds = (
            f"{limits.max_headers} headers, {limits.max_header_bytes} bytes each, {limits.max_headers_bytes} in all"
        )
        message = f"The headers are too large; the limits are {bounds}."
        self.refuse("headers_too_large", message)

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse("invalid_value", "The HTTP request is malformed.")

    def refuse(self, code: str, message: str) -> None:
        self.refuse_with(ApiError(code, message))

    def refuse_with(self, error: ApiError) -> None:
        """Answer and close. What still arrives is thrown away for a moment, as a reset would take the answer from the client."""
        if self.is_refused:
            return
        self.is_refused = True
        headers, body = self.describe(*self._asked(), error)
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

    def _asked(self) -> tuple[str, str | None]:
        """Path and origin of the request that is arriving, "" and None where they have not arrived."""
        return self.path(), self.requests[-1].origin() if self.requests and self._has_request_line() else None

    # Writing.

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        super().pauseProducing()
        self.outgoing.pause()

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if self.paused:
            self.transport.pauseProducing()
        self.outgoing.resume()

    def stopProducing(self) -> None:
        """The connection is lost; what has become a WebSocket hears of it here alone."""
        super().stopProducing()
        self.outgoing.resume()

    def write(self, data: bytes) -> None:
        self.outgoing.num_written += len(data)
        super().write(data)

    def writeSequence(self, iovec: list[bytes]) -> None:
        self.outgoing.num_written += sum(map(len, iovec))
        super().writeSequence(iovec)

    def check_unsent(self) -> None:
        """Give up on a reader for whom too many bytes are waiting."""
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
