"""One request: Twisted reads it, Daphne passes it on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from daphne.http_protocol import WebRequest

from chat.api.server_contract import Admitted, Scope
from chat.errors import ApiError
from lightcone_site.http_server.budget import BodyRoom

if TYPE_CHECKING:
    from lightcone_site.http_server.channel import BoundedChannel


class BoundedRequest(WebRequest):
    """One request. Its body stays in memory, within the limit that its channel checks, until the answer begins."""

    has_length = False
    """Whether the answer has a known length. It is complete before it is sent, so it can wait for its reader."""
    admitted: Admitted | None = None
    """The application's admission of the body; None without a body."""
    room_for_body: BodyRoom | None = None

    def scope(self, command: bytes, target: bytes) -> Scope:
        """Return the request as ASGI describes it, before its body has arrived. Raises UnicodeDecodeError."""
        path, _, query = target.partition(b"?")
        peer, host = self.channel.getPeer(), self.channel.getHost()
        headers = self.requestHeaders.getAllRawHeaders()
        return {
            "type": "http",
            "http_version": "1.1",
            "method": command.decode("ascii"),
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "root_path": self.server.root_path,
            "scheme": "https" if self.isSecure() else "http",
            "query_string": query,
            "headers": [(name.lower(), value) for name, values in headers if b"_" not in name for value in values],
            "client": [str(peer.host), peer.port] if hasattr(peer, "port") else None,
            "server": [str(host.host), host.port] if hasattr(host, "port") else None,
        }

    def parseCookies(self) -> None:
        """Leave cookies to the application."""

    def gotLength(self, length: int | None) -> None:
        self.content = io.BytesIO()

    def handleContentChunk(self, data: bytes) -> None:
        channel: BoundedChannel = self.channel
        if channel.is_refused:
            return
        num_bytes = self.content.tell() + len(data)
        if num_bytes > channel.max_body_bytes:
            channel.refuse_body()
            return
        try:
            if self.room_for_body is not None:
                self.room_for_body.grow_to(num_bytes)
        except ApiError as error:
            channel.refuse_with(error)
            return
        self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Pass the request on. Twisted's own method would parse forms here."""
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.split(b"?", 1)[0]
        self.client, self.host = self.channel.getPeer(), self.channel.getHost()
        self.process()
        if self.application_queue is None:
            self._release_body()  # it was refused, or has become a WebSocket
        if self.content is not None and not self.content.closed:
            self.content = io.BytesIO()  # the application has it by now

    def handle_reply(self, message: dict[str, Any]) -> None:
        channel: BoundedChannel | None = getattr(self, "channel", None)
        if channel is None:
            super().handle_reply(message)
            return
        if message["type"] == "http.response.start":
            self._begin_answer(message)
        with channel.outgoing.sending_at_once():
            super().handle_reply(message)
        channel.check_unsent()

    def finish(self) -> None:
        self._release_body()
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        self._release_body()
        super().connectionLost(reason)

    def _begin_answer(self, message: dict[str, Any]) -> None:
        self._release_body()
        self.has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
        if self.channel.state.stop.is_announced:
            self.setHeader(b"connection", b"close")
            self.channel.persistent = 0  # never without the header: the client may be sending its next request

    def _release_body(self) -> None:
        if self.room_for_body is not None:
            self.room_for_body.give_back()

    async def room(self) -> None:
        """Wait until the reader has taken enough, if the answer can wait. A stream cannot: its maker goes on."""
        channel: BoundedChannel | None = getattr(self, "channel", None)
        if self.has_length and channel is not None:
            await channel.outgoing.room()

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """Send Daphne's own errors in our shape instead of its HTML page."""
        error = ApiError("internal_error" if status >= 500 else "invalid_value", body)
        headers, payload = self.channel.state.options.render_error(text_of(self.path), self.origin(), error)
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": lines})
        self.handle_reply({"type": "http.response.body", "body": payload})

    def origin(self) -> str | None:
        values = self.requestHeaders.getRawHeaders(b"origin")
        return text_of(values[0]) if values else None


def text_of(value: bytes) -> str:
    return value.decode("latin-1")
