"""Expressions over characters and rules, into which regular expressions and grammars are read."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Range = tuple[int, int]
"""Code points from the first to the second, both included."""


@dataclass(frozen=True, slots=True)
class Text:
    """These characters, in order."""

    text: str


@dataclass(frozen=True, slots=True)
class CharSet:
    """One character of `ranges` (sorted, disjoint), or of a Unicode property (`\\p{…}`, as written), or none of these
    if negated.
    """

    ranges: tuple[Range, ...]
    properties: tuple[str, ...] = ()
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """The items one after the other; the empty text for no items."""

    items: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    """One of the items."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item from `least` to `most` times (None: any number)."""

    item: Expression
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """The expression of the rule with this name."""

    name: str


Expression = Text | CharSet | Sequence | Either | Repeat | Rule

EMPTY = Sequence()
ANY_CHARACTER = CharSet(((0, MAX_CODE_POINT),))
ANY_TEXT = Repeat(ANY_CHARACTER)


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules by name, and the root from which an answer must be derived."""

    rules: dict[str, Expression] = field(default_factory=dict)
    root: str = "root"


def merged(ranges: list[Range]) -> tuple[Range, ...]:
    """Return ranges sorted, disjoint and without surrogates, which no text holds."""
    result: list[Range] = []
    for first, last in sorted(_without_surrogates(ranges)):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def inverted(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Return all other characters."""
    start, result = 0, []
    for first, last in ranges:
        if first > start:
            result.append((start, first - 1))
        start = last + 1
    if start <= MAX_CODE_POINT:
        result.append((start, MAX_CODE_POINT))
    return merged(result)


def in_sequence(items: list[Expression]) -> Expression:
    """Return a sequence without needless nesting. Neighbouring texts join."""
    flat: list[Expression] = []
    for item in items:
        for part in item.items if isinstance(item, Sequence) else (item,):
            if isinstance(part, Text) and flat and isinstance(flat[-1], Text):
                flat[-1] = Text(flat[-1].text + part.text)
            elif part != Text(""):
                flat.append(part)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _without_surrogates(ranges: list[Range]) -> list[Range]:
    low, high = SURROGATES
    result = []
    for first, last in ranges:
        if first < low:
            result.append((first, min(last, low - 1)))
        if last > high:
            result.append((max(first, high + 1), last))
    return result
