"""Bytes of the relay, msgpack over the plain forms of engine.api.wire, and the terminal record of a run, a plain dict.

An entry of events is packed once and goes unchanged into the log and the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack

from chat.errors import ERROR_KINDS
from engine.api import (
    Admitted,
    Completed,
    Delta,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    Outcome,
    Rejected,
    SegmentSpoken,
    Timings,
    Usage,
)
from engine.api.wire import event_from_plain, event_to_plain, request_from_plain, request_to_plain

AUDIO = "audio"
"""The kind of sound among the media of a request."""
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


def pack_events(events: Iterable[Event]) -> bytes:
    return msgpack.packb([event_to_plain(event) for event in events])


def unpack_events(payload: bytes) -> list[Event]:
    """Raises ValueError on anything that is not a packed list of events."""
    return [event_from_plain(plain) for plain in msgpack.unpackb(payload)]


def pack_request(request: GenerationRequest) -> bytes:
    return msgpack.packb(request_to_plain(request))


def unpack_request(payload: bytes) -> GenerationRequest:
    return request_from_plain(msgpack.unpackb(payload))


def pack_record(record: Mapping[str, Any]) -> bytes:
    return msgpack.packb(record)


def unpack_record(payload: bytes) -> dict[str, Any]:
    return msgpack.unpackb(payload)


def join_deltas(events: list[Event]) -> list[Event]:
    """Join neighbouring deltas of one choice to fewer events over the same positions. Only for unpacked events."""
    joined: list[Event] = []
    for event in events:
        one = _joined(joined[-1], event) if joined else None
        if one is None:
            joined.append(event)
        else:
            joined[-1] = one
    return joined


def _joined(first: Event, second: Event) -> Event | None:
    """Join two events, or return None if they cannot be joined."""
    one, two = first.payload, second.payload
    if not isinstance(one, Delta) or not isinstance(two, Delta) or one.choice != two.choice:
        return None
    if (one.logprobs is None) != (two.logprobs is None) or first.start + first.count != second.start:
        return None
    if (one.text and two.reasoning) or (one.tool_calls and (two.reasoning or two.text)):
        return None  # within one delta reasoning goes before text, and text before calls
    logprobs = None if one.logprobs is None else one.logprobs + (two.logprobs or ())
    reasoning, tool_calls = one.reasoning + two.reasoning, one.tool_calls + two.tool_calls
    payload = Delta(one.choice, one.token_ids + two.token_ids, one.text + two.text, logprobs, reasoning, tool_calls)
    return Event(first.start, first.count + second.count, payload)


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
    record = {"error_message": "" if isinstance(payload, Completed) else payload.message} | dict(about)
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
        reasoning_tokens=usage.reasoning_tokens,
        media=_media_counted(record.get("media") or {}, usage),
        started_at=timings.started_at if timings else None,
        first_token_at=timings.first_token_at if timings else None,
        ended_at=(timings.ended_at if timings else None) or ended_at,
    )
    return record


def _media_counted(media: Mapping[str, Mapping[str, int]], usage: Usage) -> dict[str, dict[str, int]]:
    """Return how many media of which size a request had, with the tokens that stood for them.

    Sound that was written down has its length, `duration_ms`.
    """
    tokens = usage.media_tokens
    counted = {kind: dict(sums) | ({"tokens": tokens[kind]} if kind in tokens else {}) for kind, sums in media.items()}
    if AUDIO in counted and usage.audio_seconds:
        counted[AUDIO]["duration_ms"] = round(usage.audio_seconds * 1000)
    return counted


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
        elif isinstance(event.payload, Delta | SegmentSpoken):
            completion_tokens += len(event.payload.token_ids)
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def _end_of(payload: Completed | Failed | Rejected) -> tuple[Outcome, str, Usage, Timings | None]:
    if isinstance(payload, Completed):
        return payload.outcome, "", payload.usage, payload.timings
    if isinstance(payload, Failed):
        return payload.outcome, payload.code.value, payload.usage, payload.timings
    outcome = Outcome.TIMED_OUT if payload.code is ErrorCode.INFERENCE_TIMEOUT else Outcome.REJECTED
    return outcome, payload.code.value, Usage(), None
