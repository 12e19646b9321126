"""The path of every chat completion, shared by all dialects: a plain async view.

1. Key (401, 403), size (413), content type and JSON (400).  2. The checks of request/, in a thread if large.
3. Model (404), rights of the key (400).  4. The run is started; limits (429, 503), then messages (400).
5. `Admitted`, or a plain HTTP error.  6. One JSON object, or frames.

A client that goes away cancels the view; `leave()` ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponseBase

from chat.api.answering.pipeline import Accepted, StartedRun, request_start, run_start
from chat.api.answering.storage import AnswerKeep, keeping_check, keeping_refusal, keeps_answer
from chat.api.answering.streaming import run_answer
from chat.api.chat_format.numbered import NumberedStream
from chat.api.chat_format.stored import ID_PREFIX, resumable_asked, resumable_policy
from chat.api.dialect import AnswerHead, Dialect
from chat.api.request.parsed import ParsedRequest
from chat.api.stored.services import StoredKind
from chat.generation.completions import DetachPolicy

Detach = Callable[[AnswerHead], DetachPolicy]


async def completion(request: HttpRequest, dialect: Dialect[ParsedRequest]) -> HttpResponseBase:
    """Answer a completion request; the handler of every chat completion route."""
    detach = partial(resumable_policy, dialect.name) if resumable_asked(request, dialect) else None
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
