"""Responses in the store. One that goes on without its client is begun before its end.

The first process that sees its end writes it; chat.api.stored.recovery ends those that no client asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError

from chat.api.answering.pipeline import Accepted, StartedRun
from chat.api.answering.storage import AnswerKeep
from chat.api.answering.streaming import ending_error
from chat.api.dialect import AnswerHead
from chat.api.responses.answer import ended_object, failed_object, response_object
from chat.api.responses.output import OutputItems
from chat.api.responses.schema import ParsedResponse
from chat.api.stored.services import StoredAnswer, StoredKind, StoredState, answer_end
from chat.api.view import run_in_thread_if_large
from chat.errors import ApiError, engine_api_error
from chat.generation.completions import DetachPolicy, run_find, run_log
from engine.api import Admitted, ChoiceFinished, Completed, Delta, EngineError, Event, Outcome, Rejected

LOG_LIFE_S = 3600.0
EVENT_BYTES = 100
"""The approximate size of an event, by which work on many of them goes to a thread."""
LOST_MESSAGE = "The response was lost before it was finished; please send the request again."
STATES = {
    "completed": StoredState.FINISHED,
    "incomplete": StoredState.FINISHED,
    "failed": StoredState.FAILED,
    "cancelled": StoredState.CANCELLED,
}


def background_policy(head: AnswerHead) -> DetachPolicy:
    """Return the policy of a run that goes on to its deadline without a reader, and whose end may be read late."""
    return DetachPolicy(
        settings.LIGHTCONE_LIMITS.request_timeout + settings.LIGHTCONE_QUEUE_TIMEOUT_S, log_ttl_s=LOG_LIFE_S
    )


def response_keep(accepted: Accepted[ParsedResponse], run: StartedRun) -> AnswerKeep:
    """Return what keeps the response of a run. One in the background is begun before its end."""
    return AnswerKeep(
        run.generation.run_id,
        accepted.caller,
        str(StoredKind.RESPONSE),
        run.head.echo_fields["id"],
        metadata=run.head.echo_fields["metadata"],
        request={"items": accepted.parsed.items},
        is_begun=accepted.parsed.is_background,
    )


async def response_refresh(row: StoredAnswer) -> StoredAnswer:
    """Return the response with its end, if its run has ended by now. Raises EngineUnavailable."""
    if row.state != StoredState.UNFINISHED:
        return row
    found = await run_find(run_id=row.run_id.hex)
    if found is not None and not found.has_ended:
        return row
    events = await run_log(run_id=row.run_id.hex) if found is not None else []
    num_bytes = len(row.request) + EVENT_BYTES * len(events)
    row.state, row.answer = await run_in_thread_if_large(
        num_bytes, lambda: response_ended(orjson.loads(row.request), events)
    )
    with suppress(DatabaseError):  # then the maintenance worker ends it
        await database_sync_to_async(answer_end)(run_id=row.run_id.hex, state=row.state, answer=row.answer)
    return row


def response_ended(request: Mapping[str, Any], events: Iterable[Event]) -> tuple[StoredState, bytes]:
    """Return how a kept response ended, from all events of its run. Without a terminal event it was lost."""
    head = AnswerHead.load(request["head"])
    output = OutputItems(head)
    response = failed_object(head, [], ApiError("worker_lost", LOST_MESSAGE))
    for event in events:
        payload = event.payload
        if isinstance(payload, Admitted):
            head = head.admitted(payload)
        elif isinstance(payload, Delta | ChoiceFinished):
            output.take(payload)
        elif isinstance(payload, Rejected):
            response = failed_object(
                head, [], engine_api_error(EngineError(payload.code, payload.message, payload.param))
            )
        elif event.is_terminal:
            response = _ended(head, output, event)
    return StoredState(STATES[response["status"]]), orjson.dumps(response)


def _ended(head: AnswerHead, output: OutputItems, event: Event) -> dict[str, Any]:
    payload = event.payload
    if isinstance(payload, Completed) and payload.outcome == Outcome.STOPPED:
        return response_object(head, "cancelled", output=output.snapshot())
    error = ending_error(event)
    if error is not None:
        return failed_object(head, output.snapshot(), error)
    assert isinstance(payload, Completed)
    output.end()
    return ended_object(head, output.items, payload.usage, payload.timings, is_cut=output.is_cut)


def kept_head(row: StoredAnswer) -> AnswerHead:
    """Return the head of a kept response, before its admission. The row holds all items too, which may be megabytes."""
    return AnswerHead.load(orjson.loads(row.request)["head"])


def unfinished_object(head: AnswerHead, *, is_queued: bool) -> dict[str, Any]:
    return response_object(head, "queued" if is_queued else "in_progress")
