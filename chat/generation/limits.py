"""The limits of admission as a client sees them: rate headers of accepted requests, and errors of refused ones.

relay/state/admit.lua checks the limits.
"""

from __future__ import annotations

import math
from enum import StrEnum

from chat.relay.state.runs import AdmissionResult, Decision
from engine.api import EngineUnavailable, ErrorCode


class LimitKind(StrEnum):
    """The limit that was reached. Every kind is the 429 `rate_limit_exceeded` of the dialects."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"


LIMIT_MESSAGES = {
    LimitKind.REQUESTS: "This API key has used its requests for this minute.",
    LimitKind.TOKENS: "This API key has used its tokens for this minute.",
    LimitKind.CONCURRENCY: "This API key has as many requests running as it may have at once.",
}


BUSY_MESSAGES = {
    Decision.MEMORY: "The server holds as many requests as its memory allows; please try again shortly.",
    Decision.FULL: "The model '{model}' has too many requests waiting, and this project has its share of them; "
    "please try again shortly.",
}
UNREADY = {
    "loading": (ErrorCode.MODEL_LOADING, "The model '{model}' is loading ({progress:.0%})."),
    "unloaded": (
        ErrorCode.MODEL_LOADING,
        "The model '{model}' waits for memory that other models use; please try again shortly.",
    ),
    "failed": (ErrorCode.MODEL_LOAD_FAILED, "The model '{model}' could not be loaded; the administrator can see why."),
    "draining": (ErrorCode.OVERLOADED, "The model '{model}' is being restarted; please try again shortly."),
}
"""Code and message for the state of a model's best worker."""
UNSERVED = (
    ErrorCode.MODEL_UNLOADED,
    "No worker serves the model '{model}' at the moment; GET /v1/models tells which models are ready.",
)


class LimitExceeded(Exception):
    """A limit of the caller that was reached. `headers`: the response's `x-ratelimit-*` lines."""

    def __init__(self, kind: LimitKind, message: str, *, retry_after_s: int, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.headers = headers


def rate_headers(requests_per_minute: int, tokens_per_minute: int, result: AdmissionResult) -> dict[str, str]:
    """Return the `x-ratelimit-*` lines for the limits that exist (0: none). A reset reads `1s` or `6m0s`."""
    levels = (
        ("requests", requests_per_minute, result.requests_left, result.requests_reset_s),
        ("tokens", tokens_per_minute, result.tokens_left, result.tokens_reset_s),
    )
    lines = {}
    for name, limit, remaining, reset_s in levels:
        if limit:
            lines[f"x-ratelimit-limit-{name}"] = str(limit)
            lines[f"x-ratelimit-remaining-{name}"] = str(max(0, remaining))
            lines[f"x-ratelimit-reset-{name}"] = _duration(reset_s)
    return lines


def _duration(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def unready_error(model: str, state: str, progress: float) -> EngineUnavailable:
    """Return the error for a model whose best worker is in a state other than ready; `state` "": it has none."""
    code, message = UNREADY.get(state, UNSERVED)
    return EngineUnavailable(code, message.format(model=model, progress=progress))


def admission_error(model: str, result: AdmissionResult, headers: dict[str, str]) -> LimitExceeded | EngineUnavailable:
    if result.decision is Decision.UNAVAILABLE:
        return unready_error(model, result.worker_state, result.worker_progress)
    if result.decision in BUSY_MESSAGES:
        return EngineUnavailable(ErrorCode.OVERLOADED, BUSY_MESSAGES[result.decision].format(model=model))
    kind = LimitKind(result.decision.value)
    wait_s = min(60, max(1, math.ceil(result.wait_s)))
    return LimitExceeded(
        kind, f"{LIMIT_MESSAGES[kind]} Please try again in {wait_s} s.", retry_after_s=wait_s, headers=headers
    )
