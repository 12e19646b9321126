"""What the last event of a run means to its client."""

from __future__ import annotations

from chat.errors import ApiError, engine_api_error
from engine.api import Completed, EngineError, ErrorCode, Event, Failed, Outcome

INTERRUPTED_MESSAGE = "The server broke the answer off before it was whole; please send the request again."
TIMED_OUT_MESSAGE = "The request did not finish within its time limit; ask for fewer tokens, or allow it more time."


def ending_error(event: Event) -> ApiError | None:
    """The error that a terminal event stands for; None for all others, and for a run that finished."""
    payload = event.payload
    if isinstance(payload, Failed):
        if payload.outcome == Outcome.TIMED_OUT:
            return ApiError("inference_timeout", payload.message)
        return engine_api_error(EngineError(payload.code, payload.message, payload.param))
    if not isinstance(payload, Completed) or payload.outcome == Outcome.FINISHED:
        return None
    if payload.outcome == Outcome.TIMED_OUT:
        return timed_out()
    if payload.outcome in (Outcome.INTERRUPTED, Outcome.WORKER_LOST):
        return ApiError("worker_lost", INTERRUPTED_MESSAGE)
    return ApiError(ErrorCode.ENGINE_ERROR.value, "The request was stopped before it finished.")


def timed_out() -> ApiError:
    return ApiError("inference_timeout", TIMED_OUT_MESSAGE)
