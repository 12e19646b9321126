"""One request, as Twisted reads it and Daphne passes it on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from daphne.http_protocol import WebRequest

from chat.errors import ApiError

if TYPE_CHECKING:
    from chat.http_server.channel import BoundedChannel


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
        with channel.outgoing.sending_at_once():
            super().handle_reply(message)
        channel.check_unsent()

    async def room(self) -> None:
        """Wait until the reader has taken what was sent, where the answer can wait. A stream does not: whoever makes it goes on."""
        channel: BoundedChannel | None = getattr(self, "channel", None)
        if self.has_length and channel is not None:
            await channel.outgoing.room()

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """Daphne's own errors in our shape instead of its HTML page."""
        error = ApiError("internal_error" if status >= 500 else "invalid_value", body)
        headers, payload = self.channel.describe(text_of(self.path), self.origin(), error)
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": lines})
        self.handle_reply({"type": "http.response.body", "body": payload})

    def origin(self) -> str | None:
        """The Origin header, as far as headers have arrived."""
        values = self.requestHeaders.getRawHeaders(b"origin")
        return text_of(values[0]) if values else None


def text_of(value: bytes) -> str:
    return value.decode("latin-1")
