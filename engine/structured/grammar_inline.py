"""A grammar without recursion as one expression: a regular language, which llguidance follows faster than xgrammar follows rules."""

from __future__ import annotations

from engine.structured.expressions import CharSet, Either, Expression, Grammar, Repeat, Rule, Sequence, Text
from engine.structured.grammar_check import is_recursive

MAX_PARTS = 5_000


def inlined(grammar: Grammar) -> Expression | None:
    """The expression, or None if rules are recursive or would be too long written out."""
    if is_recursive(grammar):
        return None
    sizes: dict[str, int] = {}
    if _size(Rule(grammar.root), grammar, sizes) > MAX_PARTS:
        return None
    return _written_out(Rule(grammar.root), grammar)


def _size(expression: Expression, grammar: Grammar, sizes: dict[str, int]) -> int:
    """How many parts an expression has once it is written out; rules are counted once and remembered."""
    match expression:
        case Rule(name):
            if name not in sizes:
                sizes[name] = _size(grammar.rules[name], grammar, sizes)
            return sizes[name]
        case Sequence(items) | Either(items):
            return 1 + sum(_size(item, grammar, sizes) for item in items)
        case Repeat(item, _, _):
            return 1 + _size(item, grammar, sizes)
        case CharSet() | Text():
            return 1


def _written_out(expression: Expression, grammar: Grammar) -> Expression:
    match expression:
        case Rule(name):
            return _written_out(grammar.rules[name], grammar)
        case Sequence(items):
            return Sequence(tuple(_written_out(item, grammar) for item in items))
        case Either(items):
            return Either(tuple(_written_out(item, grammar) for item in items))
        case Repeat(item, least, most):
            return Repeat(_written_out(item, grammar), least, most)
        case CharSet() | Text():
            return expression
