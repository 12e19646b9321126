"""Read the white space that a client wants between the tokens of JSON, as an expression.

llguidance admits a gap in JSON and its absence. If a gap is required, the text must match `spaced_tokens` as well.
"""

from __future__ import annotations

from engine.api.constraint import COMPACT
from engine.config import StructuredLimits
from engine.structured.grammar.check import is_nullable
from engine.structured.grammar.expressions import CharSet, Either, Expression, Repeat, Rule, Sequence, Text, inverted
from engine.structured.refusal import refusal
from engine.structured.regex.reader import read_regex

WHITE_SPACE = frozenset(" \t\r\n")

_LETTER = CharSet(inverted(((0x22, 0x22), (0x5C, 0x5C))))
_STRING = Sequence((Text('"'), Repeat(Either((_LETTER, Sequence((Text("\\"), CharSet(inverted(()))))))), Text('"')))
_NUMBER = Repeat(CharSet(((0x2B, 0x2B), (0x2D, 0x2E), (0x30, 0x39), (0x45, 0x45), (0x65, 0x65))), 1)
_MARK = CharSet(((0x2C, 0x2C), (0x3A, 0x3A), (0x5B, 0x5B), (0x5D, 0x5D), (0x7B, 0x7B), (0x7D, 0x7D)))
_TOKEN = Either((_STRING, _NUMBER, _MARK, Text("true"), Text("false"), Text("null")))
"""A token of JSON. The schema says which may follow which."""


def read_gaps(whitespace: str, limits: StructuredLimits, param: str) -> Expression | None:
    """Return the expression, None for compact JSON.

    Raises RequestError for one that matches anything but white space.
    """
    if whitespace == COMPACT:
        return None
    expression = read_regex(whitespace, limits, param)
    if not _is_white(expression):
        raise refusal(
            param, "a whitespace_pattern must match nothing but space, tab, CR and LF, the white space of JSON"
        )
    return expression


def must_stand(gaps: Expression | None) -> bool:
    """Return True if no gap may be left out."""
    return gaps is not None and not is_nullable(gaps)


def spaced_tokens(gaps: Expression) -> Expression:
    """Return the expression for tokens of JSON with a gap between any two."""
    return Sequence((_TOKEN, Repeat(Sequence((gaps, _TOKEN)))))


def _is_white(expression: Expression) -> bool:
    match expression:
        case Text(text):
            return set(text) <= WHITE_SPACE
        case CharSet(ranges, properties, is_negated):
            is_small = all(last - first < len(WHITE_SPACE) for first, last in ranges)
            return (
                not properties
                and not is_negated
                and is_small
                and {chr(p) for f, to in ranges for p in range(f, to + 1)} <= WHITE_SPACE
            )
        case Sequence(items) | Either(items):
            return all(map(_is_white, items))
        case Repeat(item, _, _):
            return _is_white(item)
        case Rule():
            return False
