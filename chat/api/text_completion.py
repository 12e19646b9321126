"""The path of every text completion, shared by all dialects: the model continues a text, without a chat.

Each prompt is a run of its own; their choices make one answer.
"""

from __future__ import annotations

from typing import Protocol

from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.multi_run import RunGroup, group_start
from chat.api.answering.pipeline import request_start
from chat.api.answering.streaming import frames_sent, silence_s
from chat.api.chat_format.stream import Framing
from chat.api.dialect import RequestReader
from chat.api.request.text_schema import TextRequest
from chat.api.sse import EventStreamResponse
from chat.api.text_format.answer import TextAnswer
from chat.api.text_format.head import text_head
from chat.api.text_format.stream import TextStream
from chat.api.view import json_response
from chat.errors import ApiError


class TextDialect(RequestReader[TextRequest], Protocol):
    """One API shape for text completions."""

    framing: Framing


async def text_completion(request: HttpRequest, dialect: TextDialect) -> HttpResponseBase:
    accepted, group = await request_start(request, dialect, group_start)
    hands_over = False
    try:
        head = text_head(accepted, group.runs[0])
        if accepted.parsed.response.stream:
            await group.admissions(silence_s())
            source = GroupFrames(group, TextStream(head, dialect.framing))
            frames = frames_sent(source, accepted.parsed.field_names)
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


async def completion_body(group: RunGroup, answer: TextAnswer) -> bytes:
    """Read all runs to their ends. Raises ApiError."""
    while not group.is_over:
        update = await group.next()
        if update is not None:
            answer.feed(*update)
    return answer.body()


class GroupFrames:
    """The frames of the runs of a group. The last is written when all have ended."""

    def __init__(self, group: RunGroup, writer: TextStream) -> None:
        self.is_over = False
        self._group, self._writer = group, writer

    def opening(self) -> bytes:
        return b""

    async def next(self, timeout_s: float) -> bytes | None:
        if self._group.is_over:
            self.is_over = True
            return self._writer.end()
        update = await self._group.next(timeout_s)
        return None if update is None else self._writer.feed(*update)

    def error(self, error: ApiError) -> bytes:
        """Return the error's frame, and end the runs that still go on."""
        self._group.leave()
        return self._writer.error(error)
