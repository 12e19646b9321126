"""JSON that a client sends as the source of a constraint: bounded before it is read, as Python's reader recurses."""

from __future__ import annotations

import json
import math
from typing import Any

from engine.structured.limits import StructuredLimits
from engine.structured.refusal import check_bytes, first_line, refusal

MAX_DIGITS = 300


def read_json(text: str, limits: StructuredLimits, param: str, *, depth: int | None = None, what: str = "a schema") -> Any:
    """The value of a text within the limits of a schema; `what` it is called in refusals. Raises RequestError."""
    check_bytes(text, limits.schema_bytes, what, param)
    check_json_depth(text, depth or limits.schema_depth, param, what)
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded)
    except (ValueError, RecursionError) as error:
        raise refusal(param, f"not valid JSON: {first_line(error)}") from error


def check_json_depth(text: str, limit: int, param: str, what: str = "a schema") -> None:
    """Raises RequestError for JSON nested deeper than `limit`. Looks at brackets outside strings only."""
    depth = deepest = 0
    is_text = is_escaped = False
    for character in text:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                is_text = False
        elif character == '"':
            is_text = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    if deepest > limit:
        raise refusal(param, f"{what} must be nested at most {limit} deep, got {deepest}")


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _bounded(text: str) -> int:
    """An integer that is a float too, as the library of grammars has it."""
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too large")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value
