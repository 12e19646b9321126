"""Check that the rules of a grammar fit together, that every derivation consumes text, and that a finite one exists.

Iterative throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import CharSet, Either, Expression, Grammar, Repeat, Rule, Sequence, Text
from engine.structured.refusal import quote, refusal


def check_grammar(grammar: Grammar, limits: StructuredLimits, param: str) -> None:
    """Raise RequestError for a grammar without root, with undefined or left-recursive rules, without finite texts, or
    too large.
    """
    rules = grammar.rules
    if grammar.root not in rules:
        raise refusal(param, "the grammar has no rule named 'root' to begin with")
    num_nodes = 0
    for name, rule in rules.items():
        for expression in _parts(rule):
            num_nodes += 1
            if isinstance(expression, Rule) and expression.name not in rules:
                raise refusal(
                    param, f"rule {quote(name)} of the grammar uses {quote(expression.name)}, which is not defined"
                )
        _check_repeats(rule, limits, param)
    if num_nodes > limits.schema_nodes:
        raise refusal(param, f"a grammar must have at most {limits.schema_nodes} parts, got {num_nodes}")
    _check_left_recursion(grammar, param)
    if grammar.root not in _fixpoint(rules, _is_productive):
        raise refusal(param, "the grammar admits no finite text: every derivation of its root goes on for ever")


def is_recursive(grammar: Grammar) -> bool:
    """Return True if some rule leads back to itself."""
    return _find_cycle({name: rules_within(rule) for name, rule in grammar.rules.items()}) != ""


def rules_within(expression: Expression) -> list[str]:
    """Return the rules that an expression names."""
    return [part.name for part in _parts(expression) if isinstance(part, Rule)]


def _check_left_recursion(grammar: Grammar, param: str) -> None:
    nullable = _fixpoint(grammar.rules, is_nullable)
    edges = {name: list(_first_rules(rule, nullable)) for name, rule in grammar.rules.items()}
    found = _find_cycle(edges)
    if found:
        raise refusal(
            param,
            f"rule {quote(found)} of the grammar is left-recursive; let each alternative begin with something else",
        )


def _find_cycle(edges: dict[str, list[str]]) -> str:
    """Return a name that leads back to itself, or ''."""
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        path, open_names = [(start, iter(edges[start]))], {start}
        while path:
            name, following = path[-1]
            successor = next(following, None)
            if successor is None:
                path.pop()
                open_names.discard(name)
                done.add(name)
            elif successor in open_names:
                return successor
            elif successor not in done:
                open_names.add(successor)
                path.append((successor, iter(edges[successor])))
    return ""


def _fixpoint(rules: dict[str, Expression], holds: Callable[[Expression, Set[str]], bool]) -> set[str]:
    """Return the rules for which `holds(expression, rules found so far)` becomes true."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, rule in rules.items():
        for part in rules_within(rule):
            users[part].append(name)
    found: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in found and holds(rules[name], found):
            found.add(name)
            waiting += users[name]
    return found


def is_nullable(expression: Expression, nullable: Set[str] = frozenset()) -> bool:
    """Return True if an expression admits the empty text, given that these rules do."""
    match expression:
        case Text(text):
            return not text
        case Sequence(items):
            return all(is_nullable(item, nullable) for item in items)
        case Either(items):
            return any(is_nullable(item, nullable) for item in items)
        case Repeat(item, least, _):
            return least == 0 or is_nullable(item, nullable)
        case Rule(name):
            return name in nullable
    return False


def _is_productive(expression: Expression, productive: Set[str]) -> bool:
    match expression:
        case CharSet(ranges, properties, is_negated):
            return bool(ranges or properties or is_negated)
        case Sequence(items):
            return all(_is_productive(item, productive) for item in items)
        case Either(items):
            return any(_is_productive(item, productive) for item in items)
        case Repeat(item, least, _):
            return least == 0 or _is_productive(item, productive)
        case Rule(name):
            return name in productive
    return True


def _first_rules(expression: Expression, nullable: set[str]) -> Iterator[str]:
    """Yield the rules that may stand at the very beginning."""
    match expression:
        case Sequence(items):
            for item in items:
                yield from _first_rules(item, nullable)
                if not is_nullable(item, nullable):
                    return
        case Either(items):
            for item in items:
                yield from _first_rules(item, nullable)
        case Repeat(item, _, _):
            yield from _first_rules(item, nullable)
        case Rule(name):
            yield name


def _parts(expression: Expression) -> Iterator[Expression]:
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Sequence | Either):
            waiting += part.items
        elif isinstance(part, Repeat):
            waiting.append(part.item)


def _check_repeats(rule: Expression, limits: StructuredLimits, param: str) -> None:
    waiting = [(rule, 1)]
    while waiting:
        part, repeats = waiting.pop()
        if repeats > limits.repeats:
            raise refusal(
                param, f"the product of nested repeats in a grammar must be at most {limits.repeats}, got {repeats}"
            )
        if isinstance(part, Sequence | Either):
            waiting += [(item, repeats) for item in part.items]
        elif isinstance(part, Repeat):
            waiting.append((part.item, repeats * max(1, part.least if part.most is None else part.most)))
