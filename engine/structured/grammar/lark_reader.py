"""Read Lark's grammar language as characters: terminals are rules like others, and ignored text may stand between any
two of them.

Lark's Earley parser reads grammars the same way; how its other parser would cut a text into tokens is not modelled.
Templates, `%declare`, `%override` and `%extend` are refused. `%import common.NAME` knows the terminals below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import (
    EMPTY,
    Either,
    Expression,
    Grammar,
    Repeat,
    Rule,
    Sequence,
    Text,
    in_sequence,
)
from engine.structured.grammar.tokens import AlternativesReader, Token, literal, tokens_of, unescaped
from engine.structured.refusal import quote, refusal
from engine.structured.regex.reader import read_regex

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
TOKENS = re.compile(
    rf"""(?P<space>\s+)|(?P<comment>//[^\n]*|\#[^\n]*)|(?P<directive>%[a-z]+[^\n]*)
    |(?P<begin>[?!]*{NAME}(?:\.-?\d+)?\s*:(?!:))|(?P<template>{NAME}\s*\{{)|(?P<alias>->\s*{NAME})|(?P<name>{NAME})
    |(?P<text>"(?:[^"\\\n]|\\.)*"i?|'(?:[^'\\\n]|\\.)*'i?)|(?P<regex>/(?!/)(?:[^/\\\n]|\\.)+/[imslux]*)
    |(?P<repeat>~\s*\d+(?:\s*\.\.\s*\d+)?|[*+?])|(?P<to>\.\.)|(?P<mark>[|()\[\]{{}},])""",
    re.VERBOSE,
)
RULE_BEGIN = re.compile(rf"(?m)^\s*[?!]*{NAME}(?:\.-?\d+)?\s*:(?!:)")
COMMON = {
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "SIGNED_FLOAT": r"[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)",
    "NUMBER": r"[0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?([0-9]+|[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[a-zA-Z]",
    "WORD": r"[a-zA-Z]+",
    "CNAME": r"[_a-zA-Z][_a-zA-Z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "SQL_COMMENT": r"--[^\n]*",
}
IGNORED, UNNAMED = "ignored:", "UNNAMED:"
"""Names of rules of our own, which no client's rule can have."""


def is_lark(source: str) -> bool:
    """Return True if rules begin with `name:`."""
    return RULE_BEGIN.search(source) is not None


def read_lark(source: str, limits: StructuredLimits, param: str) -> Grammar:
    """Return the rules of a source, `root` or else `start` first. Raises RequestError."""
    return _Lark(limits, param).read(source)


@dataclass
class _Lark:
    limits: StructuredLimits
    param: str
    rules: dict[str, Expression] = field(default_factory=dict)
    ignored: list[Expression] = field(default_factory=list)
    has_gaps: bool = False

    def read(self, source: str) -> Grammar:
        tokens = list(tokens_of(TOKENS, source, self.param))
        self.has_gaps = any(token.kind == "directive" and token.text.startswith("%ignore") for token in tokens)
        reader = AlternativesReader(tokens, self._atom, self.limits, self.param)
        while (token := reader.take()) is not None:
            if token.kind == "directive":
                self._directive(token)
            elif token.kind == "begin":
                name = token.text.rstrip(": \t\r\n").lstrip("?!").partition(".")[0].strip()
                self._define(name, reader.alternatives(), token)
            else:
                raise reader.error(f"{quote(token.text)} stands where a rule should begin", token)
        root = "root" if "root" in self.rules else "start"
        if self.ignored:
            self._let_ignored(root)
        return Grammar(self.rules, root)

    def _define(self, name: str, expression: Expression, token: Token) -> None:
        if name in self.rules:
            raise refusal(
                self.param, f"invalid grammar: rule {quote(name)} is defined twice, again in line {token.line}"
            )
        self.rules[name] = expression

    def _atom(self, reader: AlternativesReader, token: Token) -> Expression | None:
        match token.kind:
            case "name":
                return Rule(token.text)
            case "text":
                return self._terminal(self._text(reader, token))
            case "regex":
                pattern, _, flags = token.text[1:].rpartition("/")
                return self._terminal(read_regex(f"(?{flags}){pattern}" if flags else pattern, self.limits, self.param))
            case "alias":
                return EMPTY
            case "template":
                raise refusal(
                    self.param,
                    f"invalid grammar: templates are not supported, as {quote(token.text)} in line {token.line}",
                )
            case "mark" if token.text == "(":
                return reader.group(")")
            case "mark" if token.text == "[":
                return Repeat(reader.group("]"), 0, 1)
        return None

    def _terminal(self, expression: Expression) -> Expression:
        """Return a terminal without a name. It gets one if gaps may stand around it, so that none can stand within."""
        if not self.has_gaps:
            return expression
        name = f"{UNNAMED}{len(self.rules)}"
        self.rules[name] = expression
        return Rule(name)

    def _text(self, reader: AlternativesReader, token: Token) -> Expression:
        text, ignores_case = self._string(token)
        following = reader.peek()
        if following is None or following.kind != "to":
            return literal(text, ignores_case)
        reader.take()
        last = reader.take()
        if last is None or last.kind != "text":
            raise reader.error("a range must end with a string", last)
        return read_regex(f"[{re.escape(text)}-{re.escape(self._string(last)[0])}]", self.limits, self.param)

    def _string(self, token: Token) -> tuple[str, bool]:
        ignores_case = token.text.endswith("i")
        text = unescaped(token.text[1 : -2 if ignores_case else -1], self.param)
        if not text:
            raise refusal(
                self.param,
                f"invalid grammar: an empty string in line {token.line}; leave the alternative empty instead",
            )
        return text, ignores_case

    def _directive(self, token: Token) -> None:
        word, _, rest = token.text.partition(" ")
        rest = re.sub(r"\s*//.*$", "", rest).strip()
        if word == "%ignore":
            reader = AlternativesReader(list(tokens_of(TOKENS, rest, self.param)), self._atom, self.limits, self.param)
            self.ignored.append(reader.alternatives())
        elif word == "%import":
            self._import(rest, token)
        else:
            raise refusal(self.param, f"invalid grammar: {quote(word)} in line {token.line} is not supported")

    def _import(self, rest: str, token: Token) -> None:
        match = re.fullmatch(
            rf"common\s*(?:\.\s*(?P<one>{NAME})(?:\s*->\s*(?P<alias>{NAME}))?|\((?P<many>[^)]*)\))", rest
        )
        if match is None:
            raise refusal(self.param, f"invalid grammar: only common.NAME can be imported, in line {token.line}")
        names = [match["one"]] if match["one"] else [name.strip() for name in match["many"].split(",")]
        for name in names:
            if name not in COMMON:
                raise refusal(self.param, f"invalid grammar: common has no {quote(name)}, in line {token.line}")
            self._define(match["alias"] or name, read_regex(COMMON[name], self.limits, self.param), token)

    def _let_ignored(self, root: str) -> None:
        """Let ignored text stand before the first terminal and after each one in a rule."""
        gap = Rule(IGNORED)
        for name in [name for name in self.rules if not name.lstrip("_").isupper()]:
            self.rules[name] = self._with_gaps(self.rules[name], gap)
        if root in self.rules:
            self.rules[root] = in_sequence([gap, self.rules[root]])
        ignored = tuple(map(self._once, self.ignored))
        self.rules[IGNORED] = Repeat(Either(ignored) if len(ignored) > 1 else ignored[0])

    def _once(self, expression: Expression) -> Expression:
        """Return the item of a run of ignored text. A run of runs could be read in many ways."""
        for _ in self.rules:
            if isinstance(expression, Rule) and expression.name in self.rules:
                expression = self.rules[expression.name]
        return (
            expression.item
            if isinstance(expression, Repeat) and expression.least <= 1 and expression.most is None
            else expression
        )

    def _with_gaps(self, expression: Expression, gap: Rule) -> Expression:
        match expression:
            case Sequence(items):
                return Sequence(tuple(self._with_gaps(item, gap) for item in items))
            case Either(items):
                return Either(tuple(self._with_gaps(item, gap) for item in items))
            case Repeat(item, least, most):
                return Repeat(self._with_gaps(item, gap), least, most)
            case Rule(name) if not name.lstrip("_").isupper():
                return expression
            case Text(""):
                return expression
        return Sequence((expression, gap))
