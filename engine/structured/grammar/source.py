"""Read the grammar of a client, in either of the two languages."""

from __future__ import annotations

from engine.config import StructuredLimits
from engine.structured.grammar.check import check_grammar
from engine.structured.grammar.ebnf_reader import is_ebnf, read_ebnf
from engine.structured.grammar.expressions import Grammar
from engine.structured.grammar.lark_reader import is_lark, read_lark
from engine.structured.refusal import check_bytes, refusal


def read_grammar(source: str, limits: StructuredLimits, param: str) -> Grammar:
    """Return a checked grammar. Raises RequestError."""
    check_bytes(source, limits.grammar_bytes, "a grammar", param)
    if is_ebnf(source):
        grammar = read_ebnf(source, limits, param)
    elif is_lark(source):
        grammar = read_lark(source, limits, param)
    else:
        raise refusal(param, "a grammar must have rules: 'root ::= …' in EBNF, or 'start: …' in the language of Lark")
    check_grammar(grammar, limits, param)
    return grammar
