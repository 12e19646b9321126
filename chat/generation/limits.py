"""What stops a request before it becomes a run: limits of its key and of its model. The checks themselves are limits.lua.

Refuses to know HTTP: `kind` is a word, and one table of the dialects maps it to a status.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LimitKind(StrEnum):
    """Which limit said no. All of them are the 429 `rate_limit_exceeded` of the dialects."""

    REQUESTS = "requests"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"


class LimitExceeded(Exception):
    """A limit of the caller is reached. `retry_after_s` is 1..60; `headers` are the `x-ratelimit-*` lines of the answer."""

    def __init__(self, kind: LimitKind, message: str, *, retry_after_s: int, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_s = retry_after_s
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Bucket:
    """State of a per-minute limit after this request. `limit` 0: the caller has no such limit."""

    limit: int
    remaining: int
    reset_s: float


def rate_headers(requests: Bucket, tokens: Bucket) -> dict[str, str]:
    """`x-ratelimit-*` lines for the limits that exist; reset as `1s`, `6m0s`."""
    lines = {}
    for name, bucket in (("requests", requests), ("tokens", tokens)):
        if bucket.limit:
            lines[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
            lines[f"x-ratelimit-remaining-{name}"] = str(max(0, bucket.remaining))
            lines[f"x-ratelimit-reset-{name}"] = _duration(bucket.reset_s)
    return lines


def _duration(seconds: float) -> str:
    whole = int(-(-seconds // 1))
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"
