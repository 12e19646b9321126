"""The task of the killable child that compiles constraints: check one, turn it into a grammar of a backend, build that,
compute its first mask.

`run` is a target of engine.killable: plain values in and out. It refuses by raising RequestError. Imports no torch.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import llguidance

from engine.api.constraint import ConstraintKind
from engine.config import StructuredLimits
from engine.structured.backends.llguidance_grammar import json_grammar, parser_limits, regex_grammar
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.exchange import CHECK, COMPILE, CONJUNCTION, EBNF, LLGUIDANCE, PREPARE, pack_grammars
from engine.structured.grammar.ebnf_writer import write_ebnf
from engine.structured.grammar.expressions import Either, Expression, Text
from engine.structured.grammar.inline import inlined
from engine.structured.grammar.source import read_grammar
from engine.structured.refusal import check_bytes, first_line, refusal
from engine.structured.regex.reader import read_regex
from engine.structured.schema.check import check_schema
from engine.structured.schema.gaps import must_stand, read_gaps, spaced_tokens
from engine.structured.schema.json_text import read_json
from engine.structured.schema.references import References
from engine.structured.schema.resources import plain_references
from engine.structured.schema.rewrite import rewrite_schema
from engine.structured.tags.grammar import TagOptions, tag_grammar
from engine.structured.tags.source import read_tag

TOOLS = "tools"
"""The `param` of a constraint that is made of several tools."""

WRAPPED_LEVELS = 8
"""The most levels that the worker's own constraints put around the schemas of a request. Their depth does not count."""

_prepared: dict[str, Any] = {}
"""The state that the first call leaves for the others: this process serves one model under one set of limits."""


def run(word: str, *arguments: Any) -> Any:
    """Run one command:

    `prepare` (model path, limits) loads the vocabulary. `compile` (kind, source, whitespace, closes_objects,
    has_control, param) returns the backend's name and payload. `check` (kind, source, param) checks a schema or a
    structural tag. `check_schemas` (list of (JSON text, param)) checks that all are schemas that an object may satisfy.
    """
    if word == PREPARE:
        path, limits = arguments
        _prepared["vocabulary"] = Vocabulary.from_path(Path(path))
        _prepared["limits"] = StructuredLimits(**limits)
        return _prepared["vocabulary"].llguidance.vocab_size
    if word == COMPILE:
        try:
            return compile_constraint(_prepared["vocabulary"], _prepared["limits"], *arguments)
        except RecursionError as error:
            raise refusal(arguments[-1], "the constraint is nested too deep to be compiled; make it flatter") from error
    if word == CHECK:
        check_unenforced(_prepared["limits"], *arguments)
        return None
    for text, param in arguments[0]:
        check_tool_schema(text, _prepared["limits"], param)
    return None


def compile_constraint(
    vocabulary: Vocabulary,
    limits: StructuredLimits,
    kind: str,
    source: str,
    whitespace: str,
    closes_objects: bool,
    has_control: bool,
    param: str,
) -> tuple[str, bytes]:
    """Return the backend and its payload; EBNF for a grammar that only xgrammar can follow, to be compiled in its own
    child. Raises RequestError.
    """
    match ConstraintKind(kind):
        case ConstraintKind.REGEX:
            grammar = regex_grammar(read_regex(source, limits, param))
        case ConstraintKind.CHOICE:
            grammar = regex_grammar(read_choices(source, limits, param))
        case ConstraintKind.JSON_OBJECT:
            return _json_constraint({"type": "object"}, vocabulary, read_gaps(whitespace, limits, param), param)
        case ConstraintKind.JSON_SCHEMA:
            schema = read_schema(source, limits if param != TOOLS else _deeper(limits), param)
            gaps = read_gaps(whitespace, limits, param)
            return _json_constraint(
                rewrite_schema(schema, limits, param, closes_objects=closes_objects), vocabulary, gaps, param
            )
        case ConstraintKind.GRAMMAR:
            rules = read_grammar(source, limits, param)
            expression = inlined(rules)
            if expression is None:
                return EBNF, write_ebnf(rules, param).encode()
            grammar = regex_grammar(expression)
        case ConstraintKind.STRUCTURAL_TAG:
            options = TagOptions(whitespace, closes_objects, has_control)
            bounds = _with_bytes(_deeper(limits), 2 * limits.tool_bytes) if has_control else limits
            grammar = tag_grammar(read_tag(source, bounds, param), vocabulary, limits, param, options)
    try_grammar(grammar, vocabulary, param)
    return LLGUIDANCE, grammar.encode()


def _json_constraint(schema: Any, vocabulary: Vocabulary, gaps: Expression | None, param: str) -> tuple[str, bytes]:
    """Return the grammar of JSON under a rewritten schema.

    A second grammar enforces gaps that must be there, which that of the schema only admits.
    """
    try:
        grammar = json_grammar(schema, gaps)
    except ValueError as error:
        raise refusal(param, f"the constraint cannot be compiled: {first_line(error)}") from error
    try_grammar(grammar, vocabulary, param)
    if gaps is None or not must_stand(gaps):
        return LLGUIDANCE, grammar.encode()
    spaced = regex_grammar(spaced_tokens(gaps))
    try_grammar(spaced, vocabulary, param)
    return CONJUNCTION, pack_grammars((grammar, spaced))


def read_schema(source: str, limits: StructuredLimits, param: str) -> Any:
    """Return the schema of a JSON text, which must be an object. Raises RequestError."""
    schema = read_json(source, limits, param)
    if not isinstance(schema, dict):
        raise refusal(param, "a JSON Schema must be an object")
    return schema


def read_choices(source: str, limits: StructuredLimits, param: str) -> Expression:
    """Return the expression for exactly one of the strings of a JSON list. Raises RequestError."""
    check_bytes(source, 8 * limits.choice_bytes, "the list of choices", param)
    choices = read_json(source, _with_bytes(limits, 8 * limits.choice_bytes), param)
    if (
        not isinstance(choices, list)
        or not choices
        or not all(isinstance(choice, str) and choice for choice in choices)
    ):
        raise refusal(param, "choice must be a list of at least one string, none of them empty")
    if len(choices) > limits.choice_strings:
        raise refusal(param, f"choice must have at most {limits.choice_strings} strings, got {len(choices)}")
    check_bytes("".join(choices), limits.choice_bytes, "the choices together", param)
    texts = sorted(set(choices))
    return Either(tuple(map(Text, texts))) if len(texts) > 1 else Text(texts[0])


def try_grammar(grammar: str, vocabulary: Vocabulary, param: str) -> None:
    """Build a grammar and its first mask. Raises RequestError if it is invalid, too complex, or admits no text."""
    matcher = llguidance.LLMatcher(vocabulary.llguidance, grammar, log_level=0, limits=parser_limits())
    if matcher.is_error():
        raise refusal(param, f"the constraint cannot be compiled: {first_line(matcher.get_error())}")
    mask = bytearray(matcher.compute_bitmask())
    if matcher.is_error() and "NoExtension" not in matcher.get_error():
        raise refusal(param, f"the constraint is too complex: {first_line(matcher.get_error())}")
    for token_id in vocabulary.eos_ids:
        mask[token_id // 8] &= ~(1 << token_id % 8)
    if matcher.is_error() or not (any(mask) or matcher.is_accepting()):
        raise refusal(param, "the constraint cannot be satisfied: no text, or only an endless one, would do")


def check_tool_schema(text: str, limits: StructuredLimits, param: str) -> None:
    """Check a tool's parameters: a valid schema that an object may satisfy. Raises RequestError."""
    schema = read_json(text, _with_bytes(limits, limits.tool_bytes), param)
    _check_shown(schema, limits, param)
    types = schema.get("type", "object") if isinstance(schema, dict) else "object" if schema is True else ""
    if types != "object" and "object" not in types:
        raise refusal(param, "the parameters of a function must be a schema of an object")


def check_unenforced(limits: StructuredLimits, kind: str, source: str, param: str) -> None:
    """Check the schema or structural tag of an answer that will be a forced call instead. Raises RequestError."""
    if ConstraintKind(kind) is ConstraintKind.JSON_SCHEMA:
        _check_shown(read_schema(source, limits, param), limits, param)
    else:
        read_tag(source, limits, param)


def _check_shown(schema: Any, limits: StructuredLimits, param: str) -> None:
    """Check a schema that is only shown: valid, with references that lead somewhere, whatever its keywords.

    Raises RequestError.
    """
    check_schema(schema, limits, param, is_enforced=False)
    References(plain_references(schema, param), param).check_targets()


def _deeper(limits: StructuredLimits) -> StructuredLimits:
    depths = {"schema_depth": limits.schema_depth + WRAPPED_LEVELS, "tag_depth": limits.tag_depth + WRAPPED_LEVELS}
    return dataclasses.replace(limits, **depths)


def _with_bytes(limits: StructuredLimits, number: int) -> StructuredLimits:
    return dataclasses.replace(limits, schema_bytes=number)
