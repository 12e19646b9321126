"""`python -m engine.structured.check`: check a constraint before it is sent with a request.

It reads one question from its input and writes one answer, both JSON, in a process of its own: constraints of clients
may take long, exhaust memory or crash their compiler. Whoever starts it bounds its time. It compiles as the worker
does, over a vocabulary of single bytes instead of a model's.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from engine.api.constraint import ConstraintKind
from engine.api.errors import RequestError
from engine.config import StructuredLimits
from engine.structured.backends.llguidance_matcher import LlguidanceTemplate
from engine.structured.backends.matcher import GrammarTemplate, MatcherFailed
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.child_task import check_tool_schema, compile_constraint
from engine.structured.exchange import EBNF
from engine.structured.schema.check import Path as SchemaPath
from engine.structured.schema.check import schema_faults
from engine.structured.schema.example import NoExample, example_value
from engine.structured.schema.json_text import read_json

TOOL_PARAMETERS = "tool_parameters"
"""The kind of a function's parameters. Few of them are enforced, so that they may have what no grammar can hold."""
JSON_KINDS = (ConstraintKind.JSON_SCHEMA, TOOL_PARAMETERS)
MAX_PROBLEMS = 20
NICENESS = 5
CPU_S = 30
"""The processor time after which the system ends a process whose parent is gone."""
ANY_GAPS = "[ \\t\\r\\n]*"
END_ID = 256
BYTES = Vocabulary(
    tokens=(*(bytes([byte]) for byte in range(END_ID)), b""),
    special_ids=frozenset({END_ID}),
    eos_ids=(END_ID,),
    encode=lambda text: list(text.encode()),
)

Answer = dict[str, Any]


def check(kind: str, source: str, text: str | None, limits: StructuredLimits) -> Answer:
    """Return `is_valid`; `problems`, each with a `message` and perhaps a `path`, a JSON pointer; `matches`, if there is
    a text, and `num_fitting`, how many of its characters can begin an answer; an `example` of a schema, None if none
    is found; and `max_bytes`, how long the constraint's text may be.

    Valid parameters of a tool have the problems that would keep a strict or forced call from being enforced.
    """
    answer: Answer = {"is_valid": True, "problems": [], "matches": None, "num_fitting": None, "example": None}
    answer["max_bytes"] = _max_bytes(kind, limits)
    is_enforced = kind != TOOL_PARAMETERS
    limits = limits if is_enforced else dataclasses.replace(limits, schema_bytes=limits.tool_bytes)
    try:
        schema = read_json(source, limits, "") if kind in JSON_KINDS else None
        if kind in JSON_KINDS and (faults := _faults(schema, limits, is_enforced=is_enforced)):
            return answer | {"is_valid": False, "problems": faults}
        if not is_enforced:
            check_tool_schema(source, limits, "")
    except RequestError as error:
        return answer | {"is_valid": False, "problems": [{"message": error.message}]}
    try:
        template = _template(ConstraintKind.JSON_SCHEMA if kind == TOOL_PARAMETERS else kind, source, limits)
    except (RequestError, RecursionError) as error:
        message = error.message if isinstance(error, RequestError) else "the constraint is nested too deep; flatten it"
        faults = _faults(schema, limits, is_enforced=True) if kind in JSON_KINDS else []
        return answer | {"is_valid": not is_enforced, "problems": faults or [{"message": message}]}
    if text is not None:
        answer["matches"], answer["num_fitting"] = match(template, text)
    if kind in JSON_KINDS:
        answer["example"] = _example(schema, template, limits)
    return answer


def _max_bytes(kind: str, limits: StructuredLimits) -> int:
    sizes = {
        ConstraintKind.JSON_SCHEMA: limits.schema_bytes,
        TOOL_PARAMETERS: limits.tool_bytes,
        ConstraintKind.CHOICE: limits.choice_bytes,
        ConstraintKind.REGEX: limits.regex_bytes,
        ConstraintKind.GRAMMAR: limits.grammar_bytes,
    }
    return sizes[kind]


def match(template: GrammarTemplate, text: str) -> tuple[bool | None, int | None]:
    """Return whether the whole text can be an answer, and how many of its characters can begin one.

    Both are None if following it has become too complex.
    """
    try:
        matcher = template.start()
        for number, letter in enumerate(text):
            if not all(matcher.accept(byte) for byte in letter.encode("utf-8", "surrogatepass")):
                return False, number
        return matcher.can_end() or matcher.is_complete(), len(text)
    except MatcherFailed:
        return None, None


def _template(kind: str, source: str, limits: StructuredLimits) -> GrammarTemplate:
    """Compile as the worker does, with any gaps in JSON. Raises RequestError."""
    backend, payload = compile_constraint(BYTES, limits, kind, source, ANY_GAPS, True, False, "")
    if backend != EBNF:
        return LlguidanceTemplate(payload, BYTES)
    _bound_memory(None)
    from engine.structured.backends.xgrammar_child import compile_grammar  # these load torch
    from engine.structured.backends.xgrammar_matcher import XgrammarTemplate
    from engine.structured.backends.xgrammar_vocabulary import xgrammar_tokens

    _bound_memory(limits.compile_bytes)
    return XgrammarTemplate(compile_grammar(xgrammar_tokens(BYTES), payload.decode(), ""), BYTES)


def _faults(schema: Any, limits: StructuredLimits, *, is_enforced: bool) -> list[Answer]:
    found = schema_faults(schema, limits, is_enforced=is_enforced, most=MAX_PROBLEMS)
    return [{"path": _pointer(path), "message": error.message} for path, error in found]


def _pointer(path: SchemaPath) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _example(schema: Any, template: GrammarTemplate, limits: StructuredLimits) -> Any:
    """Return a value that an answer may be, None if none is found."""
    for heeds_suggestions in (True, False):
        try:
            value = example_value(schema, limits, heeds_suggestions=heeds_suggestions)
        except (NoExample, RequestError, RecursionError):
            continue
        if match(template, json.dumps(value, ensure_ascii=False, separators=(",", ":")))[0]:
            return value
    return None


def _bound_memory(num_bytes: int | None) -> None:
    """Let the process grow by so many bytes, None for any number."""
    if sys.platform == "linux":
        used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        bound = resource.RLIM_INFINITY if num_bytes is None else used_bytes + num_bytes
        resource.setrlimit(resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


def main() -> None:
    os.nice(NICENESS)
    limits = StructuredLimits()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    _bound_memory(limits.compile_bytes)
    question = json.load(sys.stdin.buffer)
    answer = check(question["kind"], question["source"], question["text"], limits)
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
