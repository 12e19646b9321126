"""Converts Python literals to JSON text: strings, numbers, True, False, None, lists, tuples, sets and dicts.

A small parser that evaluates nothing and looks up no name. It returns None for anything else, and for a literal that is
too long or too deep.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 64

_NUMBER = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+(?![0-9A-Za-z_.])")
_WORD = re.compile(r"[A-Za-z]++(?![0-9A-Za-z_.'\"(\[])")
_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r"[^\\'\"\n]+")
_HEX = re.compile(r"[0-9a-fA-F]+")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = dict(
    zip("ntrbfva0\\'\"\n", ("\n", "\t", "\r", "\b", "\f", "\v", "\a", "\0", "\\", "'", '"', ""), strict=True)
)
_CODES = {"x": 2, "u": 4, "U": 8}


class _NotALiteral(ValueError):
    pass


def literal_to_json(text: str) -> str | None:
    """Return the JSON text of a literal, None if the text is not a literal."""
    if len(text) > MAX_CHARACTERS:
        return None
    literal = _Literal(text)
    try:
        value = literal.value(0)
    except _NotALiteral:
        return None
    return value if literal.is_at_end() else None


class _Literal:
    """A recursive-descent parser with a cap on the depth."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._num_pairs = 0
        self._skip_space()

    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def value(self, depth: int) -> str:
        """Return the JSON text of the next value; consume the white space after it."""
        if depth > MAX_DEPTH:
            raise _NotALiteral
        character = self._text[self._at : self._at + 1]
        if character in ("'", '"'):
            return json.dumps(self._strings(), ensure_ascii=False)
        if character == "{":
            return self._braces(depth)
        if character == "[":
            return "[" + ", ".join(self._items("[", "]", self.value, depth)[0]) + "]"
        if character == "(":
            return self._parenthesis(depth)
        word = _WORD.match(self._text, self._at)
        if word and word.group() in _WORDS:
            self._move(word.end())
            return _WORDS[word.group()]
        return self._number()

    def _items(self, opening: str, closing: str, read_item: Callable[[int], str], depth: int) -> tuple[list[str], bool]:
        """Return the items between brackets, and whether a comma follows the last one."""
        items: list[str] = []
        has_comma = False
        self._take(opening)
        while not self._next_is(closing):
            if items and not has_comma:
                raise _NotALiteral
            items.append(read_item(depth + 1))
            has_comma = self._next_is(",")
            if has_comma:
                self._take(",")
        self._take(closing)
        return items, has_comma

    def _braces(self, depth: int) -> str:
        """Read a dict, or a set, which becomes a list because JSON has no sets."""
        self._num_pairs, outer = 0, self._num_pairs
        items, _ = self._items("{", "}", self._member, depth)
        num_pairs, self._num_pairs = self._num_pairs, outer
        if num_pairs not in (0, len(items)):
            raise _NotALiteral
        return "[" + ", ".join(items) + "]" if items and not num_pairs else "{" + ", ".join(items) + "}"

    def _member(self, depth: int) -> str:
        """Read a pair of a dict, or an item of a set."""
        key = self.value(depth)
        if not self._next_is(":"):
            return key
        if key[:1] in "[{":
            raise _NotALiteral
        self._num_pairs += 1
        self._take(":")
        name = key if key.startswith('"') else json.dumps(key)
        return f"{name}: {self.value(depth)}"

    def _parenthesis(self, depth: int) -> str:
        """Read a tuple, which becomes a list, or a single value in parentheses."""
        items, has_comma = self._items("(", ")", self.value, depth)
        return items[0] if len(items) == 1 and not has_comma else "[" + ", ".join(items) + "]"

    def _number(self) -> str:
        """Read a number without what JSON lacks: leading plus, leading zeros, bare point. Overflow is refused."""
        match = _NUMBER.match(self._text, self._at)
        if not match:
            raise _NotALiteral
        self._move(match.end())
        sign = "-" if match.group().startswith("-") else ""
        mantissa, exponent_sign, exponent = match.group().lower().lstrip("+-").partition("e")
        whole, point, fraction = mantissa.partition(".")
        number = sign + (whole.lstrip("0") or "0") + (point and "." + (fraction or "0")) + exponent_sign + exponent
        if (point or exponent) and not math.isfinite(float(number)):
            raise _NotALiteral
        return number

    def _strings(self) -> str:
        """Read adjacent strings as one."""
        parts: list[str] = []
        while self._next_is("'") or self._next_is('"'):
            self._string(parts)
            self._skip_space()
        return "".join(parts)

    def _string(self, parts: list[str]) -> None:
        quote = self._text[self._at]
        if self._text.startswith(quote * 3, self._at):
            quote *= 3
        self._at += len(quote)
        while not self._text.startswith(quote, self._at):
            plain = _PLAIN.match(self._text, self._at)
            character = self._text[self._at : self._at + 1]
            if plain:
                parts.append(plain.group())
                self._at = plain.end()
            elif character == "\\":
                parts.append(self._escape())
            elif character:
                parts.append(character)
                self._at += 1
            else:
                raise _NotALiteral
        self._at += len(quote)

    def _escape(self) -> str:
        """Read an escape. Unknown ones stand for themselves, as in Python; half a surrogate pair becomes U+FFFD."""
        character = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if character not in _CODES:
            return _ESCAPES.get(character, "\\" + character)
        size = _CODES[character]
        digits = self._text[self._at : self._at + size]
        if len(digits) < size or not _HEX.fullmatch(digits):
            raise _NotALiteral
        self._at += size
        code = int(digits, 16)
        return chr(code) if code < 0xD800 or 0xE000 <= code < 0x110000 else "\ufffd"

    def _next_is(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def _take(self, character: str) -> None:
        if not self._next_is(character):
            raise _NotALiteral
        self._move(self._at + 1)

    def _move(self, at: int) -> None:
        self._at = at
        self._skip_space()

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
