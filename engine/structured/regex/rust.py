"""Write expressions without rules in the syntax of Rust's regular expressions, which llguidance reads, with every
unusual character as a number.
"""

from __future__ import annotations

from engine.structured.grammar.expressions import (
    ANY_CHARACTER,
    CharSet,
    Either,
    Expression,
    Range,
    Repeat,
    Rule,
    Sequence,
    Text,
    inverted,
)

NOTHING = r"[^\x{0}-\x{10ffff}]"


def write_regex(expression: Expression) -> str:
    """Return the expression, to be matched as a whole."""
    match expression:
        case Text(text):
            return "".join(map(_character, text))
        case CharSet():
            return _char_set(expression)
        case Sequence(items):
            return (
                "".join(_grouped(item) if isinstance(item, Either) else write_regex(item) for item in items) or "(?:)"
            )
        case Either(items):
            return "|".join(write_regex(item) for item in items)
        case Repeat(item, least, most):
            return _grouped(item) + _bounds(least, most)
        case Rule(name):
            raise ValueError(f"rule {name} in a regular expression")


def _grouped(expression: Expression) -> str:
    text = write_regex(expression)
    return text if isinstance(expression, CharSet) else f"(?:{text})"


def _bounds(least: int, most: int | None) -> str:
    if most is None:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _char_set(char_set: CharSet) -> str:
    if not char_set.ranges and not char_set.properties:
        return r"(?s:.)" if char_set.is_negated else NOTHING
    if char_set in (ANY_CHARACTER, CharSet(inverted(()))):
        return r"(?s:.)"
    content = "".join(map(_range, char_set.ranges)) + "".join(char_set.properties)
    return f"[{'^' if char_set.is_negated else ''}{content}]"


def _range(ends: Range) -> str:
    first, last = ends
    return _character(chr(first)) if first == last else f"{_character(chr(first))}-{_character(chr(last))}"


def _character(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"
