"""Number the chunks of a stream, so that it can be resumed: `"lightcone": {"seq": N}`, counted from 0.

A run's log gives the same chunks each time it is read, so a client that has seen N asks for those from N + 1.
"""

from __future__ import annotations

from chat.api.dialect import StreamWriter
from chat.errors import ApiError
from engine.api import Event

BETWEEN = b"\n\n"
CHUNK, ERROR = b"data: {", b'data: {"error":'


class NumberedStream:
    """A writer that numbers the frames of `writer` and leaves out those up to `after`. `has_ids` adds `id` lines."""

    def __init__(self, writer: StreamWriter, *, after: int = -1, has_ids: bool = False) -> None:
        self._writer = writer
        self._after = after
        self._has_ids = has_ids
        self._num_chunks = 0

    def feed(self, event: Event) -> bytes:
        return self._number(self._writer.feed(event))

    def error(self, error: ApiError) -> bytes:
        return self._number(self._writer.error(error))

    def _number(self, frames: bytes) -> bytes:
        """Number the chunks: frames without a name that hold an object. Others, errors and the end, stay as they are.

        NOTE: an error may concern this reader alone; a number of its own would be that of a chunk still to come.
        """
        return b"".join(self._numbered(frame) for frame in frames.split(BETWEEN)[:-1])

    def _numbered(self, frame: bytes) -> bytes:
        if frame.startswith(ERROR) or not frame.startswith(CHUNK):
            return frame + BETWEEN
        number = self._num_chunks
        self._num_chunks += 1
        if number <= self._after:
            return b""
        line = b"id: %d\n" % number if self._has_ids else b""
        return b'%b%b,"lightcone":{"seq":%d}}%b' % (line, frame[:-1], number, BETWEEN)
