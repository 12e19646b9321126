"""The part that the readers of EBNF and Lark share: tokens with their place, literals, sets and alternatives.

The two languages differ in how rules begin and in their atoms: each reader passes its own tokens and `read_atom`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import (
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
from engine.structured.refusal import quote, refusal

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "f": "\f", "v": "\v", "a": "\a", "b": "\b", "e": "\x1b"}
HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is the name of a group of the language's pattern."""

    kind: str
    text: str
    line: int


def tokens_of(pattern: re.Pattern[str], source: str, param: str) -> Iterator[Token]:
    """Cut a source; spaces and comments (groups `space`, `comment`) are left out. Raises RequestError."""
    place, line = 0, 1
    while place < len(source):
        match = pattern.match(source, place)
        if match is None or match.end() == place:
            raise refusal(
                param, f"invalid grammar: {quote(source[place : place + 20])} in line {line} is not understood"
            )
        if match.lastgroup not in ("space", "comment"):
            yield Token(str(match.lastgroup), match.group(), line)
        line += match.group().count("\n")
        place = match.end()


class AlternativesReader:
    """A reader of `a b | c*`, up to a token that ends the rule.

    `read_atom(reader, token)` returns an atom of the language, or None if the token begins none.
    """

    def __init__(
        self,
        tokens: list[Token],
        read_atom: Callable[[AlternativesReader, Token], Expression | None],
        limits: StructuredLimits,
        param: str,
    ) -> None:
        self._tokens = tokens
        self._read_atom = read_atom
        self._limits = limits
        self._param = param
        self.place = 0
        self._depth = 0

    def peek(self) -> Token | None:
        return self._tokens[self.place] if self.place < len(self._tokens) else None

    def take(self) -> Token | None:
        token = self.peek()
        self.place += 1
        return token

    def alternatives(self) -> Expression:
        """Everything up to a token that is no part of an expression. Raises RequestError."""
        self._depth += 1
        if self._depth > self._limits.depth:
            raise refusal(self._param, f"the groups of a grammar must be nested at most {self._limits.depth} deep")
        branches = [self._sequence()]
        while (token := self.peek()) is not None and token.text == "|" and token.kind == "mark":
            self.place += 1
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Either(tuple(branches))

    def group(self, closing: str) -> Expression:
        """What stands in brackets, the opening one taken."""
        inner = self.alternatives()
        token = self.take()
        if token is None or token.text != closing:
            raise self.error(f"{quote(closing)} is missing", token)
        return inner

    def error(self, message: str, token: Token | None = None) -> Exception:
        where = f" in line {token.line}" if token else " at its end"
        return refusal(self._param, f"invalid grammar: {message}{where}")

    def _sequence(self) -> Expression:
        items: list[Expression] = []
        while (token := self.peek()) is not None:
            before = self.place
            self.place += 1
            atom = self._read_atom(self, token)
            if atom is None:
                self.place = before
                break
            items.append(self._repeated(atom))
        return in_sequence(items)

    def _repeated(self, atom: Expression) -> Expression:
        first = self.place
        while (token := self.peek()) is not None and token.kind == "repeat":
            self.place += 1
            if self.place - first > self._limits.depth:
                raise refusal(self._param, f"the repeats of a grammar must be nested at most {self._limits.depth} deep")
            least, most = self._bounds(token)
            atom = Repeat(atom, least, most)
        return atom

    def _bounds(self, token: Token) -> tuple[int, int | None]:
        if token.text in "*+?":
            return (1 if token.text == "+" else 0), (1 if token.text == "?" else None)
        numbers = re.findall(r"\d+", token.text)
        if any(len(number) > 9 or int(number) > self._limits.repeats for number in numbers):
            raise refusal(self._param, f"a repeat of a grammar must be at most {self._limits.repeats}")
        least = int(numbers[0]) if numbers else 0
        is_range = "," in token.text or ".." in token.text
        most = int(numbers[1]) if len(numbers) > 1 else None if is_range else least
        if most is not None and most < least:
            raise self.error(f"the repeat {quote(token.text)} ends before it begins", token)
        return least, most


def unescaped(text: str, param: str) -> str:
    """The text of a literal without its quotes. Raises RequestError."""

    def replace(match: re.Match[str]) -> str:
        letter = match[1][0]
        if letter in HEX_ESCAPES:
            digits = match[1][1:]
            if len(digits) != HEX_ESCAPES[letter] or int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) <= 0xDFFF:
                raise refusal(param, f"invalid grammar: {quote(match[0])} names no character")
            return chr(int(digits, 16))
        if letter.isalnum() and letter not in ESCAPES:
            raise refusal(
                param, f"invalid grammar: the escape {quote(match[0])} is not known; list the characters, as in [0-9]"
            )
        return ESCAPES.get(letter, letter)

    return re.sub(r"\\(x[0-9A-Fa-f]{0,2}|u[0-9A-Fa-f]{0,4}|U[0-9A-Fa-f]{0,8}|.)", replace, text, flags=re.DOTALL)


def char_set(text: str, param: str) -> CharSet:
    """`[a-z\\n]` or `[^…]`, with its brackets. Raises RequestError."""
    content = text[1:-1]
    is_negated = content.startswith("^")
    pieces = re.findall(
        r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|.", content[is_negated:], flags=re.DOTALL
    )
    ranges: list[Range] = []
    index = 0
    while index < len(pieces):
        first = ord(unescaped(pieces[index], param))
        last = first
        if index + 2 < len(pieces) and pieces[index + 1] == "-":
            last = ord(unescaped(pieces[index + 2], param))
            index += 2
        if last < first:
            raise refusal(param, f"invalid grammar: a range of {quote(text)} ends before it begins")
        ranges.append((first, last))
        index += 1
    found = merged(ranges)
    return CharSet(inverted(found) if is_negated else found)


def literal(text: str, ignores_case: bool = False) -> Expression:
    """These characters, in any case if `ignores_case`."""
    if not ignores_case:
        return Text(text)
    cases = [
        sorted({ord(form) for form in (character.lower(), character.upper()) if len(form) == 1}) for character in text
    ]
    return in_sequence([CharSet(merged([(point, point) for point in points or [0]])) for points in cases])
