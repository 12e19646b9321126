"""A stream while it goes on: frames as they come, a ping after each silence. Errors that come now travel in the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Protocol

from django.conf import settings

from chat.api.answering.endings import ending_error
from chat.api.answering.keeping import Archive
from chat.api.answering.sent_names import Events
from chat.api.dialect import StreamWriter
from chat.api.sse import PING
from chat.errors import ApiError, engine_api_error, unforeseen_error
from engine.api import Admitted, EngineError, Event

logger = logging.getLogger(__name__)


class FrameSource(Protocol):
    """Where the frames of a stream come from."""

    @property
    def is_over(self) -> bool:
        """Whether the last frame has been given."""

    def opening(self) -> bytes:
        """The frame that the stream begins with; b"" where it has none."""

    async def next(self, timeout_s: float) -> bytes | None:
        """The frame of what comes next; b"" where that is not written, None after `timeout_s` of silence. May raise whatever goes wrong."""

    def error(self, error: ApiError) -> bytes:
        """The frame that ends the stream, which cannot go on."""


async def frames_sent(source: FrameSource) -> AsyncIterator[bytes]:
    """All frames of a source, with pings between them."""
    keep_alive_s = silence_s()
    clock = asyncio.get_running_loop().time
    spoke_at = clock()
    try:
        opening = source.opening()
        if opening:
            yield opening
        while not source.is_over:
            frame = await source.next(keep_alive_s)
            if frame:
                spoke_at = clock()
                yield frame
            elif settings.LIGHTCONE_LIMITS.sse_keep_alive and (frame is None or clock() - spoke_at >= keep_alive_s):
                spoke_at = clock()
                yield PING
    except EngineError as error:
        yield source.error(engine_api_error(error))
    except ApiError as error:
        yield source.error(error)
    except Exception as error:
        logger.exception("A stream broke off")
        yield source.error(unforeseen_error(error))


def silence_s() -> float:
    return settings.LIGHTCONE_LIMITS.sse_keep_alive or settings.LIGHTCONE_LIMITS.request_timeout


def stream_frames(
    reader: Events,
    writer: StreamWriter,
    *,
    admitted: Admitted,
    ahead: Event | None = None,
    archive: Archive | None = None,
) -> AsyncIterator[bytes]:
    """The frames of one run. `ahead`: an event already taken."""
    return frames_sent(RunFrames(reader, writer, admitted=admitted, ahead=ahead, archive=archive))


class RunFrames:
    """What one run says, from its admission on, as frames; an `archive` is told first."""

    def __init__(
        self,
        reader: Events,
        writer: StreamWriter,
        *,
        admitted: Admitted,
        ahead: Event | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.is_over = False
        self._reader, self._writer, self._archive = reader, writer, archive
        self._admitted, self._ahead = admitted, ahead

    def opening(self) -> bytes:
        return self._writer.feed(Event(0, 1, self._admitted))

    async def next(self, timeout_s: float) -> bytes | None:
        ahead, self._ahead = self._ahead, None
        event = ahead or await self._reader.next(timeout_s)
        if event is None:
            return None
        self.is_over = event.is_terminal
        error = ending_error(event)
        if error is not None:
            return self._writer.error(error)
        if self._archive is not None:
            await self._archive.feed(event)
        return self._writer.feed(event)

    def error(self, error: ApiError) -> bytes:
        return self._writer.error(error)
