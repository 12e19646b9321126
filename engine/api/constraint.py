"""Constraints on the text of an answer; engine.structured compiles them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

COMPACT = ""
"""The `Constraint.whitespace` of JSON without white space outside strings."""


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
