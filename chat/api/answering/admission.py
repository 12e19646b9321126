"""The wait for a worker's word on a run: until it says yes, its client can still be told no by status."""

from __future__ import annotations

import contextlib
import math
import time

from django.conf import settings

from chat.api.answering.endings import ending_error, timed_out
from chat.api.answering.sent_names import Events
from chat.api.answering.starting import StartedRun
from engine.api import Admitted, EngineUnavailable, Event, GenerationRequest, Outcome, ToolMode


async def admission_wait(run: StartedRun) -> Admitted:
    """Wait for the admission, as long as the queue and the request's own deadline allow; raises EngineError, and ApiError 408."""
    deadline_at = run.generation.deadline_at or math.inf
    try:
        return await run.reader.first(
            timeout_s=min(settings.LIGHTCONE_QUEUE_TIMEOUT_S, max(0.0, deadline_at - time.time()))
        )
    except EngineUnavailable:
        if deadline_at > time.time():
            raise
        with contextlib.suppress(EngineUnavailable):  # then it is told as the reader leaves
            await run.reader.stop(Outcome.TIMED_OUT)
        raise timed_out() from None


def may_leave_no_token(generation: GenerationRequest) -> bool:
    """Whether what the request forbids could leave no first token to choose: then the status line waits for that token."""
    sampling = generation.sampling
    is_forced = generation.tool_choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED)
    is_limited = sampling.allowed_token_ids is not None or sampling.bad_words or sampling.processors
    return bool(generation.constraint or is_forced or is_limited)


async def first_update(reader: Events, timeout_s: float) -> Event | None:
    """The event after the admission, None if it is long in coming; raises ApiError if it says that the run has failed."""
    event = await reader.next(timeout_s)
    error = None if event is None else ending_error(event)
    if error is not None:
        raise error
    return event
