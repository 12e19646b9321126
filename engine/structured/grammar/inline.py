"""Write a grammar without recursion as one expression: a regular language, which llguidance follows faster than
xgrammar follows rules.
"""

from __future__ import annotations

from engine.structured.grammar.check import is_recursive, rules_within
from engine.structured.grammar.expressions import CharSet, Either, Expression, Grammar, Repeat, Rule, Sequence, Text

MAX_PARTS = 5_000
MAX_DEPTH = 100
"""The deepest nesting of an expression written out, as its readers are recursive."""


def inlined(grammar: Grammar) -> Expression | None:
    """Return the expression, or None if rules are recursive or would be too long or too deep."""
    if is_recursive(grammar):
        return None
    sizes: dict[str, tuple[int, int]] = {}
    for name in _inner_first(grammar):
        sizes[name] = _size(grammar.rules[name], sizes)
        if sizes[name][0] > MAX_PARTS or sizes[name][1] > MAX_DEPTH:
            return None
    return _written_out(Rule(grammar.root), grammar)


def _inner_first(grammar: Grammar) -> list[str]:
    """Return the rules that the root needs, each behind those that it names."""
    order: dict[str, None] = {}
    path = [grammar.root]
    while path:
        missing = [name for name in rules_within(grammar.rules[path[-1]]) if name not in order]
        if missing:
            path.append(missing[0])
        else:
            order[path.pop()] = None
    return list(order)


def _size(expression: Expression, sizes: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the number of parts of an expression written out, and its depth."""
    match expression:
        case Rule(name):
            return sizes[name][0], 1 + sizes[name][1]
        case Sequence(items) | Either(items):
            inner = [_size(item, sizes) for item in items]
            return 1 + sum(number for number, _ in inner), 1 + max((depth for _, depth in inner), default=0)
        case Repeat(item, _, _):
            number, depth = _size(item, sizes)
            return 1 + number, 1 + depth
        case CharSet() | Text():
            return 1, 1


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
