"""How a constraint is refused: with the request field, what was wrong, the limit and the remedy; of a library's words the first line."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError

MAX_QUOTED_CHARS = 200


def refusal(param: str, message: str) -> RequestError:
    """A constraint that is wrong or too large."""
    return RequestError(ErrorCode.INVALID_VALUE, message, param)


def quote(value: object) -> str:
    """A value of the client's in a message."""
    text = repr(value)
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"


def check_bytes(text: str, limit: int, what: str, param: str) -> None:
    """Raises RequestError for a text of more than `limit` bytes."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise refusal(param, f"{what} must have at most {limit} bytes, got {size}")


def first_line(error: object) -> str:
    """The first line of a library's message, cut: the others show its inner state."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return lines[0][:MAX_QUOTED_CHARS]
