"""The paths of chat and text completions, shared by all dialects: plain async views.

1. Key (401, 403), size (413; the HTTP server has refused most), content type and JSON (400).  2. The checks of
request/, in a thread if large.
3. Model (404), rights of the key (400).  4. The run is started; limits (429, 503), then messages (400).
5. `Admitted`, or a plain HTTP error.  6. One JSON object, or frames.

A client that goes away cancels the view; `leave()` ends the run. Each prompt of a text completion is a run of its own;
their choices make one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.multi_run import RunGroup, group_start
from chat.api.answering.pipeline import Accepted, StartedRun, request_start, run_start
from chat.api.answering.storage import AnswerKeep, keeping_check, keeping_refusal, keeps_answer
from chat.api.answering.streaming import (
    EventStreamResponse,
    ProgressComments,
    frames_sent,
    run_answer,
    silence_s,
    wants_progress,
)
from chat.api.chat_format.numbered import NumberedStream
from chat.api.chat_format.stored import ID_PREFIX, resumable_asked, resumable_policy
from chat.api.dialect import AnswerHead, Dialect, Framing, RequestReader
from chat.api.request.parsed import ParsedRequest
from chat.api.request.text_schema import TextRequest
from chat.api.stored.services import StoredKind
from chat.api.text_format.answer import TextAnswer
from chat.api.text_format.head import text_head
from chat.api.text_format.stream import TextStream
from chat.api.view import json_response
from chat.errors import ApiError
from chat.generation.completions import DetachPolicy
from chat.generation.waiting import Waiting

Detach = Callable[[AnswerHead], DetachPolicy]


async def chat_completion(request: HttpRequest, dialect: Dialect[ParsedRequest]) -> HttpResponseBase:
    """Answer a completion request; the handler of every chat completion route."""
    framing = dialect.framing if resumable_asked(request) else None
    detach = partial(resumable_policy, framing) if framing is not None else None
    accepted, run = await request_start(request, dialect, partial(_start, detach))
    keep = _keep(accepted, run, is_begun=detach is not None) if keeps_answer(accepted.parsed) else None
    return await run_answer(request, dialect, accepted, run, keep=keep, wrap=NumberedStream if detach else None)


async def _start(detach: Detach | None, accepted: Accepted[ParsedRequest]) -> StartedRun:
    """Start the run. Begin in the store an answer that is kept even if the client leaves."""
    keeps = keeps_answer(accepted.parsed)
    if keeps:
        keeping_check(accepted.parsed, accepted.num_bytes)
        if (refusal := await keeping_refusal(accepted.caller.project_id)) is not None:
            raise refusal
    run = await run_start(accepted, detach=detach)
    try:
        if detach is not None and keeps:
            await _keep(accepted, run, is_begun=False).begin(run.head)
    except BaseException:
        run.reader.leave()
        raise
    return run


def _keep(accepted: Accepted[ParsedRequest], run: StartedRun, *, is_begun: bool) -> AnswerKeep:
    return AnswerKeep(
        run.generation.run_id,
        accepted.caller,
        str(StoredKind.CHAT),
        ID_PREFIX + run.head.request_id,
        metadata=accepted.parsed.delivery.metadata,
        request={"messages": accepted.parsed.messages},
        is_begun=is_begun,
    )


class TextDialect(RequestReader[TextRequest], Protocol):
    """One API shape for text completions."""

    framing: Framing


async def text_completion(request: HttpRequest, dialect: TextDialect) -> HttpResponseBase:
    is_early = wants_progress(request)
    start = partial(group_start, reports_waiting=is_early)
    accepted, group = await request_start(request, dialect, start)
    request.lightcone_headers = group.headers
    hands_over = False
    try:
        head = text_head(accepted, group.runs[0])
        if accepted.parsed.response.stream:
            if not is_early:
                await group.admissions(silence_s())
            source = GroupFrames(group, TextStream(head, dialect.framing))
            frames = frames_sent(source, accepted.parsed.field_names)
            response: HttpResponseBase = EventStreamResponse(frames, on_close=group.leave, headers=group.headers)
            hands_over = True
            return response
        return json_response(await completion_body(group, TextAnswer(head)), headers=group.headers)
    finally:
        if not hands_over:
            group.leave()


async def completion_body(group: RunGroup, answer: TextAnswer) -> bytes:
    """Read all runs to their ends. Raises ApiError."""
    while not group.is_over:
        update = await group.next()
        if update is not None and not isinstance(update[1], Waiting):
            answer.feed(update[0], update[1])
    return answer.body()


class GroupFrames:
    """The frames of the runs of a group. The last is written when all have ended."""

    def __init__(self, group: RunGroup, writer: TextStream) -> None:
        self.is_over = False
        self._group, self._writer = group, writer
        self._comments = ProgressComments()

    def opening(self) -> bytes:
        return b""

    async def next(self, timeout_s: float) -> bytes | None:
        if self._group.is_over:
            self.is_over = True
            return self._writer.end()
        update = await self._group.next(timeout_s)
        if update is None:
            return None
        index, fresh = update
        return self._comments.of(fresh) if isinstance(fresh, Waiting) else self._writer.feed(index, fresh)

    def error(self, error: ApiError) -> bytes:
        """Return the error's frame, and end the runs that still go on."""
        self._group.leave()
        return self._writer.error(error)
