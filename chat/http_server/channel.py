"""One connection: its clock, what it refuses to read, and how it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.protocol import connectionDone
from twisted.web import http

from chat.errors import ApiError
from chat.http_server.bounds import Describe
from chat.http_server.outgoing import Outgoing
from chat.http_server.reactor import reactor
from chat.http_server.request import text_of

if TYPE_CHECKING:
    from chat.http_server.server import BoundedFactory

LINGER_S = 2.0
"""How long a client may take to read why it was refused."""
REQUEST_LINE_EXTRA = 32
"""Method, version and two spaces beside the target."""


class BoundedChannel(http.HTTPChannel):
    """One connection and its clock: at most one of the header, body and idle times is running."""

    factory: BoundedFactory
    transport: Any

    @property
    def describe(self) -> Describe:
        return self.factory.server.describe

    def connectionMade(self) -> None:
        self.limits = self.factory.server.limits
        self.MAX_LENGTH = max(self.limits.max_header_bytes, self.limits.max_target_bytes + REQUEST_LINE_EXTRA)
        self.totalHeadersSize = self.limits.max_headers_bytes + self.MAX_LENGTH
        self.maxHeaders = self.limits.max_headers + 1
        self.is_refused = False
        self._is_idle = True
        self._clock: Any = None
        self.outgoing = Outgoing(self.transport, self.limits)
        super().connectionMade()
        if self.factory.admit(self.transport):
            self._start_clock(self.limits.header_timeout)
        else:
            self.transport.abortConnection()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._stop_clock()
        self.outgoing.resume()
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
        headers, body = self.describe(*self._asked(), error)
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
        """The transport's buffer is full."""
        super().pauseProducing()
        self.outgoing.pause()

    def resumeProducing(self) -> None:
        super().resumeProducing()
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
