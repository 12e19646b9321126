"""The limits of admission as a client sees them: rate headers of accepted requests, and errors of refused ones.

relay/state/admit.lua checks the limits.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum

from chat.relay.state.meters import BudgetMeter, Scope
from chat.relay.state.runs import AdmissionResult, Decision, Level
from engine.api import EngineUnavailable, ErrorCode

MAX_RETRY_S = 60
"""The longest time that clients are asked to wait before they try again by themselves."""


class LimitKind(StrEnum):
    """The limit that was reached. Every kind but QUOTA and BEYOND is the 429 `rate_limit_exceeded` of the dialects."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"
    SHARE = "share"
    HELD = "held"
    """What is left of a budget is reserved by running requests."""
    QUOTA = "quota"
    """A hard budget: `insufficient_quota`."""
    BEYOND = "beyond"
    """A hard budget whose whole amount does not cover the request: `insufficient_quota`."""


QUOTAS = (LimitKind.QUOTA, LimitKind.BEYOND)
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
    """A limit or budget that was reached, of the key or of what else the request counts to.

    `headers`: the response's `x-ratelimit-*` lines.
    """

    def __init__(
        self,
        kind: LimitKind,
        message: str,
        *,
        retry_after_s: int,
        headers: dict[str, str],
        limit_hit: str = "",
        is_for_good: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.limit_hit = limit_hit
        """The limit, for the log."""
        self.is_for_good = is_for_good
        """No time reopens it."""

    @property
    def code(self) -> str:
        """Return the code of the API's error: a rate is free again soon, a budget is not."""
        if self.kind not in QUOTAS:
            return "rate_limit_exceeded"
        return "insufficient_credits" if self.is_for_good else "insufficient_quota"


def rate_headers(result: AdmissionResult) -> dict[str, str]:
    """Return the `x-ratelimit-*` lines of the tightest limits, for those that exist. A reset reads `1s` or `6m0s`."""
    lines = {}
    levels: tuple[tuple[str, Level], ...] = (("requests", result.requests), ("tokens", result.tokens))
    for name, level in levels:
        if level.limit:
            lines[f"x-ratelimit-limit-{name}"] = str(level.limit)
            lines[f"x-ratelimit-remaining-{name}"] = str(max(0, level.left))
            lines[f"x-ratelimit-reset-{name}"] = _duration(level.reset_s)
    return lines


def _duration(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def unready_error(model: str, state: str, progress: float) -> EngineUnavailable:
    """Return the error for a model whose best worker is in a state other than ready; `state` "": it has none."""
    code, message = UNREADY.get(state, UNSERVED)
    return EngineUnavailable(code, message.format(model=model, progress=progress))


def admission_error(
    model: str,
    result: AdmissionResult,
    headers: dict[str, str],
    scopes: tuple[Scope, ...] = (),
    budgets: tuple[BudgetMeter, ...] = (),
) -> LimitExceeded | EngineUnavailable:
    """Return the error for a refusal. `scopes` and `budgets` are those of the admission."""
    if result.decision is Decision.UNAVAILABLE:
        return unready_error(model, result.worker_state, result.worker_progress)
    if result.decision in BUSY_MESSAGES:
        return EngineUnavailable(ErrorCode.OVERLOADED, BUSY_MESSAGES[result.decision].format(model=model))
    kind = LimitKind(result.decision.value)
    if kind in (*QUOTAS, LimitKind.HELD):
        return budget_error(kind, budgets[result.scope - 1], headers)
    wait_s = max(1, math.ceil(result.wait_s))
    retry = f"Please try again in {wait_text(wait_s)}."
    scope = [scope for scope in scopes if scope.is_limited][result.scope - 1]
    message, hit = _limit_reached(kind, scope, result, model)
    return LimitExceeded(
        kind, f"{message} {retry}", retry_after_s=min(MAX_RETRY_S, wait_s), headers=headers, limit_hit=hit
    )


def budget_error(kind: LimitKind, budget: BudgetMeter, headers: dict[str, str]) -> LimitExceeded:
    """Return the error for a hard budget: spent, too small, or reserved by running requests."""
    hit = f"budget {budget.budget_id} {budget.title}"
    if kind is LimitKind.HELD:
        message = (
            f"What is left of the budget “{budget.title}” is reserved by running requests. Please try again in 1 s."
        )
        return LimitExceeded(kind, message, retry_after_s=1, headers=headers, limit_hit=hit)
    if kind is LimitKind.BEYOND:
        message = (
            f"This request may cost more than the whole budget “{budget.title}”. "
            "Send a shorter prompt, or ask for less with a smaller max_tokens, min_tokens or n."
        )
        return LimitExceeded(
            kind,
            message,
            retry_after_s=MAX_RETRY_S,
            headers=headers,
            limit_hit=hit,
            is_for_good=not budget.ends_at_ms,
        )
    message = f"The budget “{budget.title}” does not cover this request."
    if not budget.ends_at_ms:
        remedy = "An administrator can raise it in the console under Budgets."
        return LimitExceeded(
            kind, f"{message} {remedy}", retry_after_s=MAX_RETRY_S, headers=headers, limit_hit=hit, is_for_good=True
        )
    reopens = datetime.fromtimestamp(budget.ends_at_ms / 1000, UTC)
    remedy = f"It reopens at {reopens:%Y-%m-%d %H:%M} UTC; a shorter request or a smaller max_tokens may fit before."
    return LimitExceeded(kind, f"{message} {remedy}", retry_after_s=MAX_RETRY_S, headers=headers, limit_hit=hit)


def _limit_reached(kind: LimitKind, scope: Scope, result: AdmissionResult, model: str) -> tuple[str, str]:
    """Return the sentence that names a limit of a scope, and its short form for the log."""
    title = scope.title or "This API key"
    if kind is LimitKind.CONCURRENCY:
        sentence = f"{title} has as many requests running as it may have at once ({scope.max_live})."
        return sentence, f"{scope.name} concurrency {scope.max_live}"
    if kind is LimitKind.SHARE:
        share = scope.queue_percent
        return (
            f"{title} has its share of the queue of the model '{model}' ({share} %).",
            f"{scope.name} queue {share} %",
        )
    rate = scope.rates[result.rate - 1]
    return f"{title} has used its {rate}.", f"{scope.name} {rate}"


def wait_text(seconds: int) -> str:
    """Return a time to wait as `45 s`, `12 min`, `5 h` or `3 days`, rounded up."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds > 2 * size:
            return f"{-(-seconds // size)} {unit}"
    return f"{seconds} s"
