"""Server-sent events: the bytes of a frame, and the response that streams them.

A frame is one JSON value on one line, in ASCII. Model output is inside a JSON string, so it cannot form a frame.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from json.encoder import encode_basestring_ascii
from typing import Any

from django.http import StreamingHttpResponse

json_string = encode_basestring_ascii
"""Return a Python string as JSON in ASCII, in C: several clients split lines at U+2028, U+2029 and U+0085."""


def compact_json(value: Any) -> str:
    """Return JSON without spaces, in ASCII."""
    return json.dumps(value, separators=(",", ":"))


PING = b": ping\n"
DONE = b"data: [DONE]\n\n"


def data_frame(json_text: str) -> bytes:
    """Return a frame. `json_text` is one JSON value in ASCII without line breaks."""
    return f"data: {json_text}\n\n".encode("ascii")


class EventStreamResponse(StreamingHttpResponse):
    """A response that streams `frames`. It calls `on_close` once, on the loop, also if the stream never began."""

    def __init__(
        self, frames: AsyncIterator[bytes], *, on_close: Callable[[], None], headers: dict[str, str] | None = None
    ) -> None:
        self._frames = _Frames(frames, on_close)
        super().__init__(self._frames, content_type="text/event-stream; charset=utf-8", headers=headers)
        self["Cache-Control"] = "no-cache, no-transform"
        self["X-Accel-Buffering"] = "no"

    def __aiter__(self) -> AsyncIterator[bytes]:
        # NOTE: Django's own __aiter__ puts two more generators between each frame and the socket.
        return aiter(self._frames)


class _Frames:
    """Frames with a `close` that any thread may call when the response is done with."""

    def __init__(self, frames: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self._frames = frames
        self._on_close: Callable[[], None] | None = on_close
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for frame in self._frames:
                yield frame
        finally:
            self._finish()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self, *_: Any) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
