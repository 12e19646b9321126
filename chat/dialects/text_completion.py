"""The path of every text completion, shared by all dialects: a text goes on, without a chat.

Each prompt is a run of its own; their choices make one answer. What differs between dialects is their door (`TextDialect`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.dialects.chat_format.framing import Framing
from chat.dialects.completion import Accepted, request_start, silence_s
from chat.dialects.dialect import ReadingDoor
from chat.dialects.request.text_schema import prompt_values
from chat.dialects.runs import RunGroup
from chat.dialects.text_format.answer import TextAnswer
from chat.dialects.text_format.head import text_head
from chat.dialects.text_format.stream import TextStream
from chat.dialects.view import json_response
from chat.errors import INTERNAL_MESSAGE, ApiError
from chat.sse import PING, EventStreamResponse
from engine.api import EngineError

logger = logging.getLogger(__name__)


class TextDialect(ReadingDoor, Protocol):
    """`read`: values as of `text_schema.text_check`; `reword` as a Dialect's."""

    framing: Framing

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError: ...


async def text_completion(request: HttpRequest, door: TextDialect) -> HttpResponseBase:
    accepted, group = await request_start(request, door, partial(completion_begin, door))
    hands_over = False
    try:
        head = text_head(accepted, group.runs[0])
        if accepted.values["stream"]:
            await group.admissions(silence_s())
            frames = _frames(group, TextStream(head, door.framing))
            response: HttpResponseBase = EventStreamResponse(frames, on_close=group.leave, headers=group.headers)
            hands_over = True
            return response
        return json_response(await completion_body(group, TextAnswer(head)), headers=group.headers)
    except ApiError as error:
        error.extra_headers = group.headers | error.extra_headers
        raise
    finally:
        if not hands_over:
            group.leave()


async def completion_begin(door: TextDialect, accepted: Accepted) -> RunGroup:
    """Start the runs of a checked request; whoever holds them leaves them. Raises ApiError."""
    values = accepted.values
    group = RunGroup(accepted, partial(prompt_values, values), len(values["prompts"]), reword=door.reword)
    await group.start()
    return group


async def completion_body(group: RunGroup, answer: TextAnswer) -> bytes:
    """Read all runs to their ends; raises ApiError."""
    while not group.is_over:
        news = await group.next()
        if news is not None:
            answer.feed(*news)
    return answer.body()


async def _frames(group: RunGroup, writer: TextStream) -> AsyncIterator[bytes]:
    """The frames of all runs, with a ping after each silence. Errors that come now travel in the stream."""
    patience_s = silence_s()
    clock = asyncio.get_running_loop().time
    spoke_at = clock()
    try:
        while not group.is_over:
            news = await group.next(patience_s)
            frame = b"" if news is None else writer.feed(*news)
            if frame:
                spoke_at = clock()
                yield frame
            elif settings.LIGHTCONE_LIMITS.sse_keep_alive and (news is None or clock() - spoke_at >= patience_s):
                spoke_at = clock()
                yield PING
        yield writer.end()
    except ApiError as error:
        group.leave()
        yield writer.error(error)
    except Exception:
        logger.exception("A stream broke off")
        group.leave()
        yield writer.error(ApiError("internal_error", INTERNAL_MESSAGE))
