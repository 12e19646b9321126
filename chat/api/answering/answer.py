"""The answer of one run: a refusal by status until it is admitted, then one JSON object, or frames (steps 5 and 6 of completion.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.accepting import Accepted, error_headers_set
from chat.api.answering.admission import admission_wait, first_update, may_leave_no_token
from chat.api.answering.endings import ending_error
from chat.api.answering.heads import head_admitted
from chat.api.answering.keeping import Archive, Keep
from chat.api.answering.sent_names import Events, SentNamesReader
from chat.api.answering.starting import StartedRun
from chat.api.answering.streaming import silence_s, stream_frames
from chat.api.dialect import AnswerWriter, Dialect, StreamWriter
from chat.api.sse import EventStreamResponse
from chat.api.view import json_response
from chat.errors import engine_api_error
from engine.api import EngineError


async def run_answer(
    request: HttpRequest,
    dialect: Dialect,
    accepted: Accepted,
    run: StartedRun,
    *,
    keep: Keep | None = None,
    wrap: Callable[[StreamWriter], StreamWriter] | None = None,
) -> HttpResponseBase:
    """Wait for the admission, then answer. The reader is left on every way out, a cancelled view included.

    `keep`: what is done with the whole answer before its last piece is sent. `wrap`: what is put around the dialect's writer of streams.
    """
    reader, values = run.reader, accepted.values
    events = SentNamesReader(reader, dialect.reword, values)
    hands_over = False
    try:
        try:
            admitted = await admission_wait(run)
            ahead = (
                await first_update(events, silence_s())
                if values["stream"] and may_leave_no_token(run.generation)
                else None
            )
        except EngineError as error:
            raise engine_api_error(dialect.reword(error, values)) from None
        head = head_admitted(run.head, admitted)
        if values["stream"]:
            writer = dialect.stream(head)
            archive = Archive(dialect.answer(head), partial(keep.end, head)) if keep is not None else None
            frames = stream_frames(
                events, wrap(writer) if wrap else writer, admitted=admitted, ahead=ahead, archive=archive
            )
            response: HttpResponseBase = EventStreamResponse(frames, on_close=reader.leave, headers=reader.headers)
            hands_over = True
            return response
        body = await answer_collect(events, dialect.answer(head))
        if keep is not None:
            await keep.end(head, body)
        return json_response(body, headers=reader.headers)
    except Exception as error:
        error_headers_set(request, error, reader.headers)
        raise
    finally:
        if not hands_over:
            reader.leave()


async def answer_collect(reader: Events, answer: AnswerWriter) -> bytes:
    """The JSON answer of a run, when it has ended; raises ApiError where it fails."""
    async for event in reader:
        error = ending_error(event)
        if error is not None:
            raise error
        answer.feed(event)
    return answer.body()
