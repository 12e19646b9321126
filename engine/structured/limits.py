"""How large a constraint may be. Checked before anything is compiled; whatever passes is compiled under a limit of time and memory too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StructuredLimits:
    """`schema_nodes` counts schemas, properties, enum values and branches; `schema_bound` is the largest `minItems`, `maxLength` and
    the like; `repeats` the product of the nested bounds of a regular expression or grammar; `depth` is that of their brackets."""

    schema_bytes: int = 256 << 10
    schema_depth: int = 64
    tag_depth: int = 80
    schema_nodes: int = 20_000
    schema_bound: int = 100_000
    repeats: int = 10_000
    regex_bytes: int = 16 << 10
    grammar_bytes: int = 256 << 10
    choice_strings: int = 10_000
    choice_bytes: int = 1 << 20
    tool_bytes: int = 1 << 20
    depth: int = 64
    compile_timeout_s: float = 5.0
    compile_bytes: int = 512 << 20
    cache_bytes: int = 256 << 20


DEFAULT_LIMITS = StructuredLimits()
