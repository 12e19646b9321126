"""The path of every chat completion, shared by all dialects: a plain async view from the first header to the last frame.

1. Key (401, 403), size (413), content type and JSON (400).  2. The checks of request/, on the loop when small, else in a thread.
3. Model (404), rights of the key (400).  4. The run is started; limits (429, 503), then messages (400).
5. `Admitted`, or a plain HTTP error.  6. One JSON object, or frames.

A client that goes away cancels the view; `leave()` tells the run. What bodies look like is the dialect's own (`Dialect`). The steps
themselves are those of answering/, which other requests take too.
"""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.accepting import Accepted, request_start
from chat.api.answering.answer import run_answer
from chat.api.answering.keeping import keeping_check, keeping_refusal, keeps_answer
from chat.api.answering.starting import StartedRun, start_reworded
from chat.api.chat_format.numbered import NumberedStream
from chat.api.chat_format.stored import ChatKeep, resumable_asked, resumable_policy
from chat.api.dialect import Dialect


async def completion(request: HttpRequest, dialect: Dialect) -> HttpResponseBase:
    """Answer a completion request; the handler of every chat completion route."""
    is_resumable = resumable_asked(request, dialect)
    accepted, run = await request_start(request, dialect, partial(_start, dialect, is_resumable))
    keep = (
        ChatKeep(accepted.values, accepted.caller, run.generation, is_begun=is_resumable)
        if keeps_answer(accepted.values)
        else None
    )
    return await run_answer(request, dialect, accepted, run, keep=keep, wrap=NumberedStream if is_resumable else None)


async def _start(dialect: Dialect, is_resumable: bool, accepted: Accepted) -> StartedRun:
    """Start the run; an answer that is to be kept even if the client leaves is begun in the store."""
    values = accepted.values
    keeping_check(values, accepted.num_bytes)
    if keeps_answer(values) and (refusal := await keeping_refusal(accepted.caller.project_id)) is not None:
        raise refusal
    if is_resumable:
        values["detach"] = partial(resumable_policy, dialect.name)
    run = await start_reworded(accepted, dialect.reword)
    try:
        if is_resumable and keeps_answer(values):
            await ChatKeep(values, accepted.caller, run.generation).begin(run.head)
    except BaseException:
        run.reader.leave()
        raise
    return run
