"""The white space that a client allows between the tokens of JSON, as an expression."""

from __future__ import annotations

from engine.api.constraint import COMPACT
from engine.structured.expressions import CharSet, Either, Expression, Repeat, Rule, Sequence, Text
from engine.structured.limits import StructuredLimits
from engine.structured.refusal import refusal
from engine.structured.regex_reader import read_regex

WHITE_SPACE = frozenset(" \t\r\n")


def read_gaps(whitespace: str, limits: StructuredLimits, param: str) -> Expression | None:
    """None for compact JSON. Raises RequestError for an expression that matches anything but white space."""
    if whitespace == COMPACT:
        return None
    expression = read_regex(whitespace, limits, param)
    if not _is_white(expression):
        raise refusal(param, "a whitespace_pattern must match nothing but space, tab, CR and LF, the white space of JSON")
    return expression


def _is_white(expression: Expression) -> bool:
    match expression:
        case Text(text):
            return set(text) <= WHITE_SPACE
        case CharSet(ranges, properties, is_negated):
            is_small = all(last - first < len(WHITE_SPACE) for first, last in ranges)
            return not properties and not is_negated and is_small and {chr(p) for f, to in ranges for p in range(f, to + 1)} <= WHITE_SPACE
        case Sequence(items) | Either(items):
            return all(map(_is_white, items))
        case Repeat(item, _, _):
            return _is_white(item)
        case Rule():
            return False
