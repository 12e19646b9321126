"""Starts, finds and follows the runs of the page, for its socket and for its server-sent events.

run = await run_open(visitor, run_name, body, trace=…)    # or run_rejoin(visitor, run_name)
async for said in run_said(run): …                        # messages, up to `completed`; raises if the run fails
finally: run.reader.leave()
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from django.conf import settings
from django.urls import reverse

from chat.access.accounts import playground_caller
from chat.access.authentication import configuration_refresh
from chat.access.keys import Caller
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.api.answering.hearing import Hearing
from chat.api.answering.pipeline import Accepted, rejection_record
from chat.api.answering.streaming import ending_check
from chat.api.dialect import AnswerHead
from chat.api.request.parsed import ParsedRequest
from chat.conversations.runs import cost_of, run_public_id
from chat.errors import ApiError, FieldNames, api_error, names_unchanged
from chat.generation.completions import RequestTrace, RunReader, run_attach, run_find_public, run_stop
from chat.generation.waiting import Waiting, model_is_away, waiting_watch
from chat.playground.attached import run_start_filled
from chat.playground.messages import Message, RunMessages
from chat.playground.requests import kept_read, page_policy, page_request_parse
from engine.api import ChoiceFinished, Completed, Delta, Outcome, PromptScored, Usage

LOOK_S = 0.5
"""Silence after which a run may have lost what computed it."""
GONE_MESSAGE = "This answer cannot be picked up: it never began, or it ended too long ago."


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in user of the playground."""

    caller: Caller
    name: str
    sees_log: bool
    """May open rows of the request log."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that a page reads, before its admission."""

    reader: RunReader
    head: AnswerHead
    has_ranks: bool
    model: str
    """Whose workers take it."""
    visitor: Visitor
    field_names: FieldNames = names_unchanged
    """The names in the request, if it was sent here."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of an event, or between two events. No messages: a silence, or an event that shows nothing."""

    messages: tuple[Message, ...] = ()
    is_logged: bool = False
    """Whoever reads the run again gets the same messages."""


def visitor_of(user: Any, caller: Caller | None = None) -> Visitor:
    """Return the visitor for a user, whose caller may be known. Raises KeyInvalid without the permission to chat."""
    caller = caller or playground_caller(user=user)
    return Visitor(caller, user.get_username(), may(user, Act.LOGS_SEE, org_id=caller.org_id, least=Reach.ORG))


def page_trace(*, route: str, user_agent: str, address: str) -> RequestTrace:
    """Return what the request log keeps of a call of the page, cut to its limits."""
    size = settings.LIGHTCONE_LOG_FIELD_CHARS
    return RequestTrace(
        dialect="playground",
        route=route[:size],
        is_stream=True,
        user_agent=user_agent[:size],
        address=address[:size],
    )


async def run_open(
    visitor: Visitor, run_name: str, body: Any, *, trace: RequestTrace, hearing: Hearing = nullcontext
) -> OpenRun:
    """Check the request as the API does, and start it. Raises ApiError.

    `trace` has what neither the visitor nor the body says. `hearing`: entered while sound is written down, before the
    run is there.
    """
    if not isinstance(body, dict):
        raise ApiError("invalid_type", "request must be an object", "request")
    arrived_at = time.time()
    parsed, caller = ParsedRequest(), visitor.caller
    await configuration_refresh()
    trace = _trace_of(trace, visitor, parsed)
    try:
        parsed = page_request_parse(body)
        trace = _trace_of(trace, visitor, parsed)
        accepted = Accepted(caller, parsed, trace, arrived_at, num_bytes=0, request_id=run_name, hearing=hearing)
        started = await run_start_filled(accepted, detach=page_policy(caller, run_name, parsed))
    except Exception as error:
        row_id = rejection_record(error, caller=caller, trace=trace, arrived_at=arrived_at)
        failure = api_error(error)
        failure.request_id = row_id
        failure.rename_fields(parsed.field_names)
        raise failure from error
    has_ranks = not parsed.generation.logprobs.token_ids
    return OpenRun(started.reader, started.head, has_ranks, started.generation.model, visitor, parsed.field_names)


async def run_rejoin(visitor: Visitor, run_name: str) -> OpenRun:
    """Return a reader of this user's run, from its first event. Raises ApiError and EngineUnavailable."""
    caller = visitor.caller
    found = await run_find_public(public_id=run_public_id(caller, run_name), caller=caller)
    attached = None if found is None else await run_attach(run_id=found[0], caller=caller)
    if found is None or attached is None:
        raise ApiError("not_resumable", GONE_MESSAGE)
    head, has_ranks = kept_read(found[1])
    return OpenRun(attached[0], head, has_ranks, str(attached[1].about["model"]), visitor)


async def run_end(visitor: Visitor, run_name: str) -> bool:
    """Stop this user's run wherever it is read; False if there is none. Raises EngineUnavailable."""
    caller = visitor.caller
    found = await run_find_public(public_id=run_public_id(caller, run_name), caller=caller)
    if found is not None:
        await run_stop(run_id=found[0])
    return found is not None


async def run_said(run: OpenRun) -> AsyncIterator[Said]:
    """Yield all that is said of a run, about twice a second also that nothing is.

    Raises ApiError if the run fails, EngineError if it is lost.
    """
    patience_s = settings.LIGHTCONE_QUEUE_TIMEOUT_S
    before: Waiting | None = None
    async for waiting in waiting_watch(run.reader, model=run.model, timeout_s=patience_s):
        yield Said(({"type": "waiting", **asdict(waiting)},) if waiting != before else ())
        before = waiting
    admitted = await run.reader.first(timeout_s=patience_s)
    messages = RunMessages(run.head.admitted(admitted), has_ranks=run.has_ranks)
    yield Said(tuple(messages.admitted(admitted)), is_logged=True)
    loss, is_over = _Loss(run), False
    while not is_over:
        event = await run.reader.next(LOOK_S)
        if await loss.is_new(is_silent=event is None):
            yield Said(({"type": "resuming"},))
        if event is None:
            yield Said()
            continue
        payload, is_over = event.payload, event.is_terminal
        if isinstance(payload, Delta | ChoiceFinished | PromptScored):
            message = messages.fed(payload)
            yield Said(() if message is None else (message,), is_logged=True)
        elif isinstance(payload, Completed) and payload.outcome in (Outcome.FINISHED, Outcome.STOPPED):
            facts = await database_sync_to_async(_facts)(run, payload.usage)
            yield Said((messages.completed(payload, facts=facts),), is_logged=True)
        else:
            ending_check(event)


def run_failure(error: Exception, run: OpenRun | None) -> ApiError:
    """Return the error of a run for its page, with the field names and the row of the log that belong to it."""
    failure = api_error(error)
    if run is not None:
        failure.rename_fields(run.field_names)
        failure.request_id = run.reader.run_id
    return failure


class _Loss:
    """Whether a run has lost the worker or the core that computed it, until its next event."""

    def __init__(self, run: OpenRun) -> None:
        self._run = run
        self._attempt = run.reader.attempt
        self._is_lost = False

    async def is_new(self, *, is_silent: bool) -> bool:
        """Return True once per loss."""
        was_lost, attempt = self._is_lost, self._run.reader.attempt
        is_next = attempt > self._attempt
        self._attempt = attempt
        self._is_lost = is_silent and (was_lost or is_next or await model_is_away(self._run.model))
        return (self._is_lost or is_next) and not was_lost


def _facts(run: OpenRun, usage: Usage) -> Message:
    """Return what the request log will say of a run."""
    run_id, cost = run.reader.run_id, cost_of(model=run.model, usage=usage)
    log_url = reverse("admin:chat_requestlog_change", args=[UUID(hex=run_id)]) if run.visitor.sees_log else None
    return {"cost": cost, "request_id": run_id, "log_url": log_url, "attempts": run.reader.attempt}


def _trace_of(trace: RequestTrace, visitor: Visitor, parsed: ParsedRequest) -> RequestTrace:
    size = settings.LIGHTCONE_LOG_FIELD_CHARS
    name, model = visitor.name[:size], (parsed.model or "")[:size]
    return replace(trace, user_label=name, model_asked=model, metadata=parsed.delivery.metadata)
