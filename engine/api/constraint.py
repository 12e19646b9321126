"""Constraints on the text of an answer; engine.structured compiles them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

COMPACT = ""
"""The `Constraint.whitespace` of JSON without white space outside strings."""
MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
BRACKETS_PER_LEVEL = 3
"""The most brackets of one level of a schema: of an object, of a map from names in it, and of a list in that."""


class ConstraintKind(StrEnum):
    """How `Constraint.source` is read."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint of one request."""

    kind: ConstraintKind
    source: str = ""
    """The JSON text of a schema, of the list of choices or of a structural tag; a regular expression; a grammar (EBNF
    or Lark); "" for any JSON object."""
    param: str = "structured_outputs"
    """The request field that errors name."""
    whitespace: str = COMPACT
    """JSON: a regular expression for each gap between tokens."""
    closes_objects: bool = True
    """JSON: no unlisted properties where a schema lists some and does not say otherwise."""
    has_control: bool = False
    """Set in the engine's own structural tags: constants that spell control tokens mean these tokens."""


def is_deeper(value: Any, max_levels: int) -> bool:
    """Return True if the objects of a JSON Schema or structural tag are nested more than `max_levels` levels.

    Maps from names to schemas, and lists in objects, are no levels. The web process and the worker count alike.
    """
    waiting = [(value, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > max_levels:
            return True
        if isinstance(value, list):
            waiting += [(item, depth + isinstance(item, list)) for item in value if isinstance(item, dict | list)]
            continue
        if not isinstance(value, dict):
            continue
        for name, item in value.items():
            items = item.values() if name in MAPS_OF_SCHEMAS and isinstance(item, dict) else (item,)
            waiting += [(inner, depth + 1) for inner in items if isinstance(inner, dict | list)]
    return False
