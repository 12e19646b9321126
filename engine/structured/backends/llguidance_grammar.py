"""Constraints as grammars of llguidance, and the limits under which it may work on one. No tokenizer is needed for these."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import llguidance

from engine.structured.grammar.expressions import Expression
from engine.structured.regex.rust import write_regex

CONTROL = re.compile(r"\\u00(?:[01]|7f)")
"""A control character in JSON text as Python writes it, but for those that have an escape of their own."""


@lru_cache(maxsize=1)
def parser_limits() -> llguidance.LLParserLimits:
    """For the trial and the core alike: what passes the trial can be built by the core. Large enumerations need the fuel."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=200_000_000,
        step_lexer_fuel=500_000,
        max_lexer_states=100_000,
        max_grammar_size=2_000_000,
        verbose_errors=False,
    )


def json_options(whitespace: Expression | None, schema: Any) -> Any:
    """How JSON under a schema is written: with these gaps, or without any; with `\\u` only where the schema speaks of control characters.

    A property that the schema lists could else be written `"\\u0061"`, and be taken for one that it does not list.
    """
    escapes = {} if CONTROL.search(json.dumps(schema)) else {"json_allowed_escapes": 'nrbtf\\"'}
    if whitespace is None:
        return {"whitespace_flexible": False} | escapes
    return {"whitespace_flexible": True, "whitespace_pattern": write_regex(whitespace)} | escapes


def json_grammar(schema: Any, whitespace: Expression | None) -> str:
    """A value under a rewritten schema."""
    if isinstance(schema, bool):
        schema = {"anyOf": [schema]}
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=json_options(whitespace, schema))


def regex_grammar(expression: Expression) -> str:
    """The texts of an expression."""
    return llguidance.LLMatcher.grammar_from_regex(write_regex(expression))
