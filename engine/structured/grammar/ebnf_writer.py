"""Write a checked grammar as EBNF for xgrammar, with every unusual character as a number."""

from __future__ import annotations

from engine.structured.grammar.expressions import (
    CharSet,
    Either,
    Expression,
    Grammar,
    Range,
    Repeat,
    Rule,
    Sequence,
    Text,
    inverted,
)
from engine.structured.refusal import refusal


def write_ebnf(grammar: Grammar, param: str) -> str:
    """Return the rules with names of our own, the root's first and called `root`.

    Raises RequestError for features of regular expressions alone.
    """
    names = {name: f"r{index}" for index, name in enumerate(grammar.rules)} | {grammar.root: "root"}
    ordered = [grammar.root, *(name for name in grammar.rules if name != grammar.root)]
    return "\n".join(f"{names[name]} ::= {_Writer(names, param).write(grammar.rules[name])}" for name in ordered)


class _Writer:
    def __init__(self, names: dict[str, str], param: str) -> None:
        self._names = names
        self._param = param

    def write(self, expression: Expression) -> str:
        match expression:
            case Text(text):
                return '"' + "".join(map(_character, text)) + '"'
            case CharSet():
                return self._char_set(expression)
            case Sequence(items):
                return " ".join(self._grouped(item) for item in items) or '""'
            case Either(items):
                return " | ".join(self.write(item) for item in items)
            case Repeat(item, least, most):
                return self._grouped(item) + _bounds(least, most)
            case Rule(name):
                return self._names[name]

    def _grouped(self, expression: Expression) -> str:
        text = self.write(expression)
        return text if isinstance(expression, CharSet | Rule | Text) else f"({text})"

    def _char_set(self, char_set: CharSet) -> str:
        if char_set.properties:
            raise refusal(self._param, f"a grammar cannot use {char_set.properties[0]}; list the characters")
        ranges = inverted(char_set.ranges) if char_set.is_negated else char_set.ranges
        return "[" + "".join(map(_range, ranges)) + "]"


def _bounds(least: int, most: int | None) -> str:
    if most is None:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _range(ends: Range) -> str:
    first, last = ends
    return _character(chr(first)) if first == last else f"{_character(chr(first))}-{_character(chr(last))}"


def _character(character: str) -> str:
    if character.isascii() and character.isalnum():
        return character
    point = ord(character)
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
