"""Write constraints as grammars of llguidance, and set the limits of its work. These need no tokenizer."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import llguidance

from engine.structured.grammar.expressions import Expression
from engine.structured.regex.rust import write_regex

CONTROL = re.compile(r"\\u00(?:[01]|7f)")
"""A control character in JSON text as Python writes it, except those with an escape of their own."""


@lru_cache(maxsize=1)
def parser_limits() -> llguidance.LLParserLimits:
    """Return the limits for the child and the core alike: the core can build what the child has built.

    Large enumerations need the fuel.
    """
    return llguidance.LLParserLimits(
        initial_lexer_fuel=200_000_000,
        step_lexer_fuel=500_000,
        max_lexer_states=100_000,
        max_grammar_size=2_000_000,
        verbose_errors=False,
    )


def json_options(whitespace: Expression | None, schema: Any) -> Any:
    """Return the options for JSON under a schema: with these gaps or none, with `\\u` only if the schema contains
    control characters.

    A listed property could otherwise be written `"\\u0061"` and be taken for an unlisted one.
    """
    escapes = {} if CONTROL.search(json.dumps(schema)) else {"json_allowed_escapes": 'nrbtf\\"'}
    if whitespace is None:
        return {"whitespace_flexible": False} | escapes
    return {"whitespace_flexible": True, "whitespace_pattern": write_regex(whitespace)} | escapes


def json_grammar(schema: Any, whitespace: Expression | None) -> str:
    """Return the grammar of values under a rewritten schema."""
    if isinstance(schema, bool):
        schema = {"anyOf": [schema]}
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=json_options(whitespace, schema))


def regex_grammar(expression: Expression) -> str:
    """Return the grammar of the texts of an expression."""
    return llguidance.LLMatcher.grammar_from_regex(write_regex(expression))
