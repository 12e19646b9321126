"""The terminal record of a run as a plain dict. The usage stream carries it, and chat.usage.services stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chat.errors import ERROR_KINDS
from engine.api import Admitted, Completed, Delta, ErrorCode, Event, Failed, Outcome, Rejected, Timings, Usage

STATUSES = {
    Outcome.FINISHED: 200,
    Outcome.STOPPED: 200,
    Outcome.DISCONNECTED: 499,
    Outcome.INTERRUPTED: 503,
    Outcome.TIMED_OUT: 408,
    Outcome.REJECTED: 400,
    Outcome.FAILED: 500,
    Outcome.WORKER_LOST: 503,
}


def terminal_record(
    about: Mapping[str, Any],
    payload: Completed | Failed | Rejected,
    *,
    run_id: str,
    attempts: int,
    worker: str,
    ended_at: float,
    finish_reason: str = "",
) -> dict[str, Any]:
    """Build the terminal record from the run's terminal event and `about`, the fields that admission knew."""
    outcome, code, usage, timings = _end_of(payload)
    record = dict(about)
    record.update(
        run_id=run_id,
        status=ERROR_KINDS[code].status if code in ERROR_KINDS else STATUSES[outcome],
        outcome=outcome.value,
        error_code=code,
        finish_reason=finish_reason,
        attempts=attempts,
        worker=worker,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        started_at=timings.started_at if timings else None,
        first_token_at=timings.first_token_at if timings else None,
        ended_at=(timings.ended_at if timings else None) or ended_at,
    )
    return record


def client_outcome_fields(client_outcome: str) -> dict[str, Any]:
    """Return the record's fields for a client that saw another outcome than the run's own."""
    outcome = Outcome(client_outcome)
    code = ErrorCode.WORKER_LOST.value if outcome is Outcome.WORKER_LOST else ""
    return {"outcome": outcome.value, "status": STATUSES[outcome], "error_code": code}


def usage_of(events: Iterable[Event]) -> Usage:
    """Return the usage of an unfinished run from its logged events, which do not tell the cached prompt tokens."""
    prompt_tokens = completion_tokens = 0
    for event in events:
        if isinstance(event.payload, Admitted):
            prompt_tokens = event.payload.num_prompt_tokens
        elif isinstance(event.payload, Delta):
            completion_tokens += len(event.payload.token_ids)
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def _end_of(payload: Completed | Failed | Rejected) -> tuple[Outcome, str, Usage, Timings | None]:
    if isinstance(payload, Completed):
        return payload.outcome, "", payload.usage, payload.timings
    if isinstance(payload, Failed):
        return payload.outcome, payload.code.value, payload.usage, payload.timings
    outcome = Outcome.TIMED_OUT if payload.code is ErrorCode.INFERENCE_TIMEOUT else Outcome.REJECTED
    return outcome, payload.code.value, Usage(), None
