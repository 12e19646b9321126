"""`POST /v1/completions`: a text goes on, without a chat. Each prompt is a run of its own; their choices make one answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.dialects.completion import Accepted, request_start, silence_s
from chat.dialects.prompts.completion_request import TEXT_COMPLETIONS, TextCompletions, prompt_values
from chat.dialects.prompts.runs import RunGroup
from chat.dialects.prompts.text_answer import TextAnswer
from chat.dialects.prompts.text_head import text_head
from chat.dialects.prompts.text_stream import TextStream
from chat.dialects.view import json_response
from chat.errors import INTERNAL_MESSAGE, ApiError
from chat.sse import PING, EventStreamResponse

logger = logging.getLogger(__name__)


async def text_completion(request: HttpRequest, door: TextCompletions) -> HttpResponseBase:
    accepted, group = await request_start(request, door, completion_begin)
    hands_over = False
    try:
        head = text_head(accepted, group.runs[0])
        if accepted.values["stream"]:
            await group.admissions(silence_s())
            frames = _frames(group, TextStream(head))
            response: HttpResponseBase = EventStreamResponse(frames, on_close=group.leave, headers=group.headers)
            hands_over = True
            return response
        response = json_response(await completion_body(group, TextAnswer(head)))
        for name, value in group.headers.items():
            response[name] = value
        return response
    except ApiError as error:
        error.extra_headers = group.headers | error.extra_headers
        raise
    finally:
        if not hands_over:
            group.leave()


async def completion_begin(accepted: Accepted) -> RunGroup:
    """Start the runs of a checked request; whoever holds them leaves them. Raises ApiError."""
    values = accepted.values
    group = RunGroup(accepted, partial(prompt_values, values), len(values["prompts"]), reword=TEXT_COMPLETIONS.reword)
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
