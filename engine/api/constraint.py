"""What the text of an answer must be, in the engine's own words; compiled by engine.structured. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

COMPACT = ""
"""`Constraint.whitespace` of JSON without any white space outside strings."""


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
    """One constraint; `param` is the request field that refusals name.

    `source`: the JSON text of a schema, of the list of choices or of a structural tag; a regular expression; a grammar (EBNF or Lark);
    nothing for any JSON object. For JSON: `whitespace` is the regular expression of each gap between tokens (`COMPACT`: none), and
    `closes_objects` admits no unlisted properties where a schema lists some and does not say otherwise.
    `has_control` is for the engine's own structural tags: constants that are texts of control tokens stand for these tokens.
    """

    kind: ConstraintKind
    source: str = ""
    param: str = "structured_outputs"
    whitespace: str = COMPACT
    closes_objects: bool = True
    has_control: bool = False
