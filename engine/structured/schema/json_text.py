"""Read JSON that a client sends as the source of a constraint. It is bounded first, as Python's reader recurses."""

from __future__ import annotations

import json
import math
from typing import Any

from engine.api.constraint import BRACKETS_PER_LEVEL, is_deeper
from engine.api.errors import RequestError
from engine.config import StructuredLimits
from engine.structured.refusal import check_bytes, first_line, refusal

MAX_DIGITS = 300


def read_json(
    text: str, limits: StructuredLimits, param: str, *, depth: int | None = None, what: str = "a schema"
) -> Any:
    """Return the value of a text within the limits of a schema. Errors call it `what`. Raises RequestError.

    `depth` is in levels of `is_deeper`; None stands for that of a schema.
    """
    check_bytes(text, limits.schema_bytes, what, param)
    levels = depth or limits.schema_depth
    if _bracket_depth(text) > BRACKETS_PER_LEVEL * levels:
        raise _too_deep(what, levels, param)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded)
    except (ValueError, RecursionError) as error:
        raise refusal(param, f"not valid JSON: {first_line(error)}") from error
    if is_deeper(value, levels):
        raise _too_deep(what, levels, param)
    return value


def _too_deep(what: str, levels: int, param: str) -> RequestError:
    return refusal(param, f"{what} must be nested at most {levels} levels deep; flatten it or use $defs")


def _bracket_depth(text: str) -> int:
    """Return how deep brackets outside strings are nested. Python's reader might not be able to follow."""
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
    return deepest


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _bounded(text: str) -> int:
    """Return an integer within the range of floats, as the grammar library has it."""
    if len(text) > MAX_DIGITS:
        raise ValueError("a number is too large")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value
