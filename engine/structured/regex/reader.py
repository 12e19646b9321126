"""Read regular expressions of clients (Python's syntax, and ECMAScript's where only spelling differs) into expressions.

Python's own parser reads them, so that an answer matches what `re.fullmatch` matches. If Python and ECMAScript disagree
about a class (`\\w`, `.`), only the characters that both accept are taken. Features that no automaton can follow are
refused: look-around, back-references, word borders, atomic groups. Anchors are accepted at the ends, where they add
nothing.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from re import _constants as codes  # type: ignore[attr-defined]  # the parser of the standard library, its only complete one
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import (
    ANY_TEXT,
    EMPTY,
    MAX_CODE_POINT,
    SURROGATES,
    CharSet,
    Either,
    Expression,
    Range,
    Repeat,
    Text,
    in_sequence,
    inverted,
    merged,
)
from engine.structured.refusal import check_bytes, first_line, refusal

ASCII_CLASSES: dict[Any, tuple[Range, ...]] = {
    codes.CATEGORY_DIGIT: ((0x30, 0x39),),
    codes.CATEGORY_WORD: ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    codes.CATEGORY_SPACE: ((0x09, 0x0D), (0x20, 0x20)),
}
POSITIVE_CLASSES: dict[Any, str] = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_SPACE: r"\s",
}
NEGATED_CLASSES: dict[Any, Any] = {
    codes.CATEGORY_NOT_DIGIT: codes.CATEGORY_DIGIT,
    codes.CATEGORY_NOT_WORD: codes.CATEGORY_WORD,
    codes.CATEGORY_NOT_SPACE: codes.CATEGORY_SPACE,
}
BYTE_ORDER_MARK: Range = (0xFEFF, 0xFEFF)
WRITTEN_PLANES = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE1000))
LINE_ENDS: tuple[Range, ...] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
STARTS = {codes.AT_BEGINNING, codes.AT_BEGINNING_STRING}
ENDS = {codes.AT_END, codes.AT_END_STRING}
FIRST_PROPERTY = 0xF0000
"""Private characters that stand for Unicode properties while Python's parser, which knows none, reads the expression.
"""
MAX_CASED_RANGE = 1024
REFUSED = {
    codes.ASSERT: "look-around",
    codes.ASSERT_NOT: "look-around",
    codes.GROUPREF: "back-references",
    codes.GROUPREF_EXISTS: "conditions on groups",
    codes.ATOMIC_GROUP: "atomic groups",
    codes.POSSESSIVE_REPEAT: "possessive repeats",
}
REPEATS = {codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT}
BRACES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]|\{(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)\}|(\{)", re.DOTALL)
"""Everything in a valid pattern that may hold a brace. The group is one that Python alone takes for itself."""
Anchored = tuple[bool, Expression, bool]
"""Whether an alternative begins with an anchor, its expression, and whether it ends with an anchor."""


def read_regex(pattern: str, limits: StructuredLimits, param: str, *, searches: bool = False) -> Expression:
    """Return the texts that the whole pattern matches; with `searches` those in which it is found somewhere.

    Raises RequestError.
    """
    parsed, properties = _parsed(pattern, limits, param)
    reader = _Reader(limits, param, properties)
    alternatives = reader.alternatives(list(parsed), parsed.state.flags)
    if not searches:
        return _either([expression for _, expression, _ in alternatives])
    return _either(
        [
            in_sequence([EMPTY if starts else ANY_TEXT, expression, EMPTY if ends else ANY_TEXT])
            for starts, expression, ends in alternatives
        ]
    )


def check_regex(pattern: str, limits: StructuredLimits, param: str) -> None:
    """Raise RequestError for an expression that is none, or beyond the limits.

    One that is not enforced may use what `REFUSED` names.
    """
    parsed, properties = _parsed(pattern, limits, param)
    _Reader(limits, param, properties).check_repeats(parsed, 1)


def _parsed(pattern: str, limits: StructuredLimits, param: str) -> tuple[Any, list[str]]:
    """Return the pattern as Python's parser reads it, and the Unicode properties that it hides. Raises RequestError."""
    check_bytes(pattern, limits.regex_bytes, "a regular expression", param)
    if not pattern:
        raise refusal(param, "a regular expression must not be empty")
    if "\0" in pattern:
        raise refusal(param, "a regular expression must not hold NUL characters; write \\x00")
    _check_depth(pattern, limits.depth, param)
    plain, properties = _hide_properties(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parsed = _parser.parse(plain.replace("(?<", "(?P<") if _has_named_groups(plain) else plain)
        except (re.error, OverflowError, RecursionError) as error:
            raise refusal(param, f"invalid regular expression: {first_line(error)}") from error
    if any(match[1] for match in BRACES.finditer(plain)):
        raise refusal(
            param, "invalid regular expression: a { that repeats nothing is an error in most dialects; write \\{"
        )
    return parsed, properties


class _Reader:
    """A walk over the result of Python's parser."""

    def __init__(self, limits: StructuredLimits, param: str, properties: list[str]) -> None:
        self._limits = limits
        self._param = param
        self._properties = properties

    def alternatives(self, items: list[Any], flags: int) -> list[Anchored]:
        """Return the alternatives of a whole expression, with anchors at their ends removed."""
        starts = ends = False
        while items and items[0][0] is codes.AT and items[0][1] in STARTS:
            starts, items = True, items[1:]
        while items and items[-1][0] is codes.AT and items[-1][1] in ENDS:
            ends, items = True, items[:-1]
        if flags & re.MULTILINE and (starts or ends):
            raise refusal(self._param, "a regular expression cannot use multi-line anchors; write line breaks instead")
        branches, flags = self._branches(items, flags)
        if branches is None:
            return [(starts, self._sequence(items, flags, 1), ends)]
        inner = [alternative for branch in branches for alternative in self.alternatives(branch, flags)]
        return [(starts or first, expression, ends or last) for first, expression, last in inner]

    def _branches(self, items: list[Any], flags: int) -> tuple[list[list[Any]] | None, int]:
        """Return the branches of a lone choice or group; None for anything else."""
        if len(items) == 1 and items[0][0] is codes.BRANCH:
            return [list(branch) for branch in items[0][1][1]], flags
        if len(items) == 1 and items[0][0] is codes.SUBPATTERN:
            _, added, removed, content = items[0][1]
            return [list(content)], (flags | added) & ~removed
        return None, flags

    def check_repeats(self, items: Any, repeats: int) -> None:
        """Raise RequestError if repeats multiply beyond the limit, whatever else there is."""
        for code, value in items:
            within = repeats
            if code in REPEATS:
                within = self._counted(repeats, int(value[0]), None if value[1] is codes.MAXREPEAT else int(value[1]))
            parts = value if isinstance(value, tuple) else (value,)
            for part in parts:
                for group in part if isinstance(part, list) else (part,):
                    if isinstance(group, _parser.SubPattern):
                        self.check_repeats(group, within)

    def _sequence(self, items: list[Any], flags: int, repeats: int) -> Expression:
        return in_sequence([self._item(code, value, flags, repeats) for code, value in items])

    def _item(self, code: Any, value: Any, flags: int, repeats: int) -> Expression:
        if code in REFUSED:
            raise refusal(
                self._param,
                f"a regular expression cannot use {REFUSED[code]}: only what takes linear time is supported",
            )
        if code is codes.AT:
            raise refusal(self._param, "a regular expression can have anchors at its ends only, and no word borders")
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            return self._character(code, value, flags)
        if code is codes.BRANCH:
            return _either([self._sequence(list(branch), flags, repeats) for branch in value[1]])
        if code is codes.SUBPATTERN:
            _, added, removed, content = value
            return self._sequence(list(content), (flags | added) & ~removed, repeats)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, content = value
            bound = None if most is codes.MAXREPEAT else int(most)
            return Repeat(
                self._sequence(list(content), flags, self._counted(repeats, int(least), bound)), int(least), bound
            )
        raise refusal(self._param, "the regular expression uses a construct that is not supported")

    def _counted(self, repeats: int, least: int, most: int | None) -> int:
        """Return how often something inside this repeat may be written out."""
        repeats *= max(1, least if most is None else most)
        if repeats > self._limits.repeats:
            raise refusal(
                self._param,
                f"the product of nested repeats in a regular expression must be at most {self._limits.repeats}, "
                f"got {repeats}",
            )
        return repeats

    def _character(self, code: Any, value: Any, flags: int) -> Expression:
        if code is codes.ANY:
            return CharSet(((0, MAX_CODE_POINT),)) if flags & re.DOTALL else CharSet(inverted(LINE_ENDS))
        if code is codes.LITERAL and SURROGATES[0] <= value <= SURROGATES[1]:
            raise refusal(
                self._param, f"\\u{value:04x} in a regular expression is half a character; write the character itself"
            )
        if code is codes.LITERAL and not self._is_property(value):
            cased = self._cased([(value, value)], flags)
            return Text(chr(value)) if cased == [(value, value)] else CharSet(merged(cased))
        members = value if code is codes.IN else [(codes.LITERAL, value)]
        is_negated = code is codes.NOT_LITERAL or members[0][0] is codes.NEGATE
        return self._char_set([member for member in members if member[0] is not codes.NEGATE], is_negated, flags)

    def _char_set(self, members: list[Any], is_negated: bool, flags: int) -> CharSet:
        ranges: list[Range] = []
        properties: list[str] = []
        classes = {value for code, value in members if code is codes.CATEGORY}
        if any(NEGATED_CLASSES.get(category) in classes for category in classes):
            return CharSet(() if is_negated else ((0, MAX_CODE_POINT),))
        for code, value in members:
            if code is codes.LITERAL and self._is_property(value):
                properties.append(self._properties[value - FIRST_PROPERTY])
            elif code is codes.CATEGORY:
                ranges += self._category(value, is_negated)
            else:
                ranges += self._cased([(value, value) if code is codes.LITERAL else value], flags, is_negated)
        if not properties:
            return CharSet(inverted(merged(ranges)) if is_negated else merged(ranges))
        return CharSet(merged(ranges), tuple(properties), is_negated)

    def _category(self, category: Any, is_negated: bool) -> list[Range]:
        """Return the characters of a class that all dialects include; inside a negated set those that any dialect
        includes.
        """
        if category in ASCII_CLASSES:
            return list(_in_any_dialect(category) if is_negated else ASCII_CLASSES[category])
        positive = NEGATED_CLASSES[category]
        return list(inverted(ASCII_CLASSES[positive] if is_negated else _in_any_dialect(positive)))

    def _cased(self, ranges: list[Range], flags: int, is_negated: bool = False) -> list[Range]:
        """Add the other cases of letters, if case is ignored."""
        if not flags & re.IGNORECASE:
            return ranges
        result = list(ranges)
        for first, last in ranges:
            if last - first >= MAX_CASED_RANGE:
                if is_negated:
                    raise refusal(self._param, "a negated set that ignores case must not hold large ranges")
                continue
            for point in range(first, last + 1):
                character = chr(point)
                others = {character.lower(), character.upper(), character.casefold(), character.upper().lower()}
                result += [(ord(other), ord(other)) for other in others if len(other) == 1]
        return result

    def _is_property(self, point: int) -> bool:
        return 0 <= point - FIRST_PROPERTY < len(self._properties)


def _either(items: list[Expression]) -> Expression:
    return items[0] if len(items) == 1 else Either(tuple(items))


@cache
def _in_any_dialect(category: Any) -> tuple[Range, ...]:
    """Return the characters of a class in Python and those in ECMAScript, whose spaces include the byte order mark.

    NOTE: only planes of Unicode with letters, digits or spaces are looked at. The others take half a second and have
    none.
    """
    characters = "".join(chr(point) for part in WRITTEN_PLANES for point in part)
    runs = [(ord(run[0]), ord(run[-1])) for run in re.findall(f"{POSITIVE_CLASSES[category]}+", characters)]
    return merged(runs + ([BYTE_ORDER_MARK] if category is codes.CATEGORY_SPACE else []))


def _check_depth(pattern: str, limit: int, param: str) -> None:
    depth = deepest = 0
    is_escaped = False
    for character in pattern:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    if deepest > limit:
        raise refusal(param, f"the groups of a regular expression must be nested at most {limit} deep, got {deepest}")


def _has_named_groups(pattern: str) -> bool:
    """Return True if ECMAScript's `(?<name>…)` occurs, other than a look-behind, which begins alike."""
    return re.search(r"\(\?<[A-Za-z_]", pattern) is not None and re.search(r"\(\?<[=!]", pattern) is None


def _hide_properties(pattern: str) -> tuple[str, list[str]]:
    """Return the pattern with a private character in place of each `\\p{…}`, and these as written."""
    found: list[str] = []

    def hide(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        found.append(match[0])
        return chr(FIRST_PROPERTY + len(found) - 1)

    return re.sub(r"\\(?:([pP]\{[A-Za-z_=]{1,64}\})|.)", hide, pattern, flags=re.DOTALL), found
