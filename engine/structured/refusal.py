"""Refuse a constraint, with the request field, the mistake, the limit and the remedy."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError

MAX_QUOTED_CHARS = 200


def refusal(param: str, message: str) -> RequestError:
    """Return the error for a constraint that is wrong or too large."""
    return RequestError(ErrorCode.INVALID_VALUE, message, param)


def quote(value: object) -> str:
    """Return a value of the client for a message."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"


def check_bytes(text: str, limit: int, what: str, param: str) -> None:
    """Raise RequestError for a text of more than `limit` bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise refusal(param, f"{what} must have at most {limit} bytes, got {size}")


def first_line(error: object) -> str:
    """Return the first line of a library's message, cut. The others show its inner state."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return lines[0][:MAX_QUOTED_CHARS]
