"""Read EBNF: `rule ::= "text" | [a-z]+ other`, comments from `#` on. The answer is derived from `root`."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import ANY_CHARACTER, Expression, Grammar, Rule
from engine.structured.grammar.tokens import AlternativesReader, Token, char_set, literal, tokens_of, unescaped
from engine.structured.refusal import quote, refusal

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
TOKENS = re.compile(
    rf"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<begin>{NAME}\s*::=)|(?P<name>{NAME})
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<set>\[(?:[^\]\\]|\\.)*\])
    |(?P<repeat>[*+?]|\{{\s*\d*\s*(?:,\s*\d*\s*)?\}})|(?P<mark>[|()])|(?P<any>\.)""",
    re.VERBOSE,
)
RULE_BEGIN = re.compile(rf"(?m)^\s*{NAME}\s*::=")


def is_ebnf(source: str) -> bool:
    """Return True if rules begin with `::=`."""
    return RULE_BEGIN.search(source) is not None


def read_ebnf(source: str, limits: StructuredLimits, param: str) -> Grammar:
    """Return the rules of a source. Raises RequestError. check.py checks whether they fit together."""
    reader = AlternativesReader(list(tokens_of(TOKENS, source, param)), _atom(param), limits, param)
    rules: dict[str, Expression] = {}
    while (token := reader.take()) is not None:
        if token.kind != "begin":
            raise reader.error(f"{quote(token.text)} stands where a rule should begin", token)
        name = token.text[:-3].strip()
        if name in rules:
            raise refusal(param, f"invalid grammar: rule {quote(name)} is defined twice, again in line {token.line}")
        rules[name] = reader.alternatives()
    return Grammar(rules)


def _atom(param: str) -> Callable[[AlternativesReader, Token], Expression | None]:
    def read(reader: AlternativesReader, token: Token) -> Expression | None:
        match token.kind:
            case "name":
                return Rule(token.text)
            case "text":
                return literal(unescaped(token.text[1:-1], param))
            case "set":
                return char_set(token.text, param)
            case "any":
                return ANY_CHARACTER
            case "mark" if token.text == "(":
                return reader.group(")")
        return None

    return read
