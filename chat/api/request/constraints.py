"""Read `structured_outputs` and `response_format` into the engine's `Constraint`.

Checks shapes and sizes; the worker compiles, and refuses what has no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from django.conf import settings
from rest_framework.exceptions import ValidationError

from chat.api.openapi.notation import TEXT, one_of, shape
from chat.api.request.fields import (
    Array,
    Boolean,
    Object,
    Record,
    RequestField,
    Text,
    check_bytes,
    echo,
    read_at,
    refuse,
    text_read,
)
from chat.api.request.strict_json import json_bounds, json_read
from chat.errors import ApiError
from engine.api import COMPACT, Constraint, ConstraintKind
from engine.api.constraint import is_deeper

LIMITS = settings.LIGHTCONE_LIMITS
LOOSE_WHITESPACE = r"[ \t\n\r]{0,64}"
CONSTRAINT_KEYS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
FORMAT_TYPES = ("text", "json_object", "json_schema", "structural_tag")
NO_ITEMS = "must have at least one item"

BLANK = r"(?:[ \t\n\r]|\\[tnr]|\\x(?:20|09|0[aAdD]))"
TOKENS = re.compile(
    rf"(?P<blank>{BLANK})|(?P<class>\[{BLANK}+\])|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)"
    r"|(?P<repeat>[*+?]|\{[0-9]{1,5}(?:,[0-9]{0,5})?\})"
)
HELP = r"must match only spaces, tabs, CR and LF, written with ' ', \t, \r, \n, [ ], ( ), |, *, +, ? and {m,n}"


def schema_text(schema: Any, *, max_depth: int | None = None) -> str:
    """Return the JSON text of a schema within the limits of size and depth. Raises ValidationError."""
    if not isinstance(schema, dict):
        raise refuse("invalid_type", f"must be a JSON object, got {echo(schema)}")
    max_depth = max_depth or LIMITS.max_schema_depth
    if is_deeper(schema, max_depth):
        raise refuse("invalid_value", f"must be nested at most {max_depth} levels deep; flatten it or use $defs")
    text = orjson.dumps(schema)
    if len(text) > LIMITS.max_schema_bytes:
        raise refuse("invalid_value", f"must be at most {LIMITS.max_schema_bytes} bytes long, got {len(text)}")
    return text.decode()


def _parsed(text: str) -> Any:
    """Return the value of a JSON text of at most a schema's size. Raises ValidationError."""
    if not text.strip():
        raise refuse("invalid_value", "must not be empty")
    check_bytes(text, LIMITS.max_schema_bytes)
    try:
        return json_read(text.encode(), json_bounds())
    except ApiError:
        raise refuse("invalid_value", "must be valid JSON") from None


class SchemaOrText(RequestField):
    """A JSON Schema, as an object or as its JSON text."""

    json_schema = {"oneOf": [{"type": "object"}, TEXT]}

    def to_internal_value(self, data: Any) -> str:
        return schema_text(_parsed(data) if isinstance(data, str) else data)


class Choices(Array):
    """The texts of which the answer must be one. Reads to their JSON text."""

    def __init__(self, help_text: str = "") -> None:
        super().__init__(
            filled_read,
            item_schema={"type": "string", "minLength": 1},
            max_items=LIMITS.max_choice_strings,
            if_empty=NO_ITEMS,
            help_text=help_text,
        )

    def to_internal_value(self, data: Any) -> str:
        choices = super().to_internal_value(data)
        num_bytes = sum(len(choice.encode()) for choice in choices)
        if num_bytes > LIMITS.max_choice_bytes:
            raise refuse("invalid_value", f"must hold at most {LIMITS.max_choice_bytes} bytes of text, got {num_bytes}")
        return orjson.dumps(choices).decode()


def filled_read(value: Any) -> str:
    """Return a string, which may be a blank but not empty. Raises ValidationError."""
    if not text_read(value):
        raise refuse("invalid_value", "must not be empty")
    return str(value)


class Enabled(Boolean):
    """A constraint that can only be switched on."""

    def to_internal_value(self, data: Any) -> bool:
        if not super().to_internal_value(data):
            raise refuse("invalid_value", "must be true; leave it out to have no constraint")
        return True


def _structural_tag_read(text: str) -> str:
    return structural_tag_text(_parsed(text))


def whitespace_read(pattern: str) -> str:
    """Return a pattern that matches white space alone, in every dialect of regular expressions.

    Raises ValidationError for any other.
    """
    depth, position = 0, 0
    can_repeat = False
    while position < len(pattern):
        match = TOKENS.match(pattern, position)
        kind = match.lastgroup if match else None
        if match is None or (kind == "repeat" and not can_repeat) or (kind == "close" and depth == 0):
            raise refuse("invalid_value", f"{HELP}; it goes wrong at character {position}")
        if kind == "repeat":
            _check_repeat(match.group())
        depth += {"open": 1, "close": -1}.get(kind or "", 0)
        can_repeat = kind in ("blank", "class", "close")
        position = match.end()
    if depth:
        raise refuse("invalid_value", "has a parenthesis that is not closed")
    return pattern


def _check_repeat(text: str) -> None:
    low, comma, high = text.strip("{}").partition(",")
    if comma and high and int(high) < int(low):
        raise refuse("invalid_value", f"repeats {text}, from more to less")


class StructuredOutputs(Record):
    """One constraint and the options of its JSON. Reads to a dict of its parts."""

    parts = {
        "json": SchemaOrText("A JSON Schema, or its JSON text."),
        "regex": Text(
            "The whole answer matches it.", max_bytes=LIMITS.max_regex_bytes, is_label=True, read=filled_read
        ),
        "choice": Choices("The answer is one of these."),
        "grammar": Text("EBNF with the rule root, or Lark.", max_bytes=LIMITS.max_grammar_bytes, is_filled=True),
        "json_object": Enabled("Any JSON object."),
        "structural_tag": Text("JSON text of a structural tag.", read=_structural_tag_read),
        "disable_any_whitespace": Boolean("False: up to 64 blanks in each gap of JSON. Otherwise: none."),
        "disable_additional_properties": Boolean(
            "Admit no unlisted properties where a schema lists some and says nothing of others.", default=True
        ),
        "whitespace_pattern": Text(
            "Regular expression for each gap of JSON.", max_bytes=LIMITS.max_regex_bytes, read=whitespace_read
        ),
        "disable_fallback": Boolean("No effect: a constraint is never weakened.", default=False),
    }

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        if values["disable_any_whitespace"] and values["whitespace_pattern"] is not None:
            raise refuse("invalid_value", "cannot be true together with whitespace_pattern", "disable_any_whitespace")
        return values


NO_OUTPUTS: Mapping[str, Any] = StructuredOutputs().run_validation({})
"""The value of a request without `structured_outputs`."""


class JsonSchemaFormat(Record):
    parts = {
        "name": Text(is_required=True, is_label=True, max_chars=LIMITS.max_label_chars),
        "description": Text(),
        "schema": Object(),
        "strict": Boolean(),
    }


JSON_SCHEMA_FORMAT = JsonSchemaFormat("With json_schema.", is_required=True, null_is_absent=True)


class ResponseFormat(RequestField):
    """One of FORMAT_TYPES. Reads to a Constraint with compact JSON, None for text."""

    json_schema = shape(
        """
        {
            type: type; schema?: object | null "With json_object: its JSON Schema."; json_schema?: json_schema;
            format?: object "With structural_tag: its root node.";
            structures?: [object] "With structural_tag, legacy form.";
            triggers?: [string] "With structural_tag, legacy form."
        }
        """,
        type=one_of(*FORMAT_TYPES),
        json_schema=JSON_SCHEMA_FORMAT.schema_object(),
    )

    def to_internal_value(self, data: Any) -> Constraint | None:
        kind = response_format_type(data)
        if kind == "json_object" and data.get("schema") is not None:
            text = read_at("schema", schema_text, data["schema"])
            return Constraint(ConstraintKind.JSON_SCHEMA, text, "response_format.schema")
        if kind == "json_object":
            return Constraint(ConstraintKind.JSON_OBJECT, param="response_format")
        if kind == "json_schema":
            return _json_schema(read_at("json_schema", JSON_SCHEMA_FORMAT.run_validation, data.get("json_schema")))
        if kind == "structural_tag":
            return Constraint(ConstraintKind.STRUCTURAL_TAG, structural_tag_text(data), "response_format")
        return None


def response_format_type(data: Any) -> str:
    if not isinstance(data, dict):
        raise refuse("invalid_type", f"must be an object, got {echo(data)}")
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in FORMAT_TYPES:
        raise refuse("invalid_value", f"must be one of {', '.join(FORMAT_TYPES)}; got {echo(kind)}", "type")
    return kind


def _json_schema(values: Mapping[str, Any]) -> Constraint:
    if values["schema"] is None:
        return Constraint(ConstraintKind.JSON_OBJECT, param="response_format.json_schema")
    try:
        text = schema_text(values["schema"])
    except ValidationError as error:
        raise ValidationError({"json_schema": {"schema": error.detail}}) from None
    return Constraint(ConstraintKind.JSON_SCHEMA, text, "response_format.json_schema.schema")


def structural_tag_text(tag: Any) -> str:
    """Return the JSON text of a structural tag in either form, with known keys alone. Raises ValidationError."""
    if not isinstance(tag, dict):
        raise refuse("invalid_type", f"must be a JSON object, got {echo(tag)}")
    if tag.get("type", "structural_tag") != "structural_tag":
        raise refuse("invalid_value", f"must be structural_tag, got {echo(tag['type'])}", "type")
    if tag.get("format") is not None:
        if not isinstance(tag["format"], dict):
            raise refuse("invalid_type", f"must be an object, got {echo(tag['format'])}", "format")
        known = {"type": "structural_tag", "format": tag["format"]}
    elif tag.get("structures") is not None or tag.get("triggers") is not None:
        known = {"type": "structural_tag", **_legacy_tag(tag)}
    else:
        raise refuse("invalid_value", "is required: a structural tag has format, or structures and triggers", "format")
    return schema_text(known, max_depth=LIMITS.max_structural_tag_depth)


def _legacy_tag(tag: Mapping[str, Any]) -> dict[str, Any]:
    triggers = read_at("triggers", _legacy_list(filled_read, if_empty=NO_ITEMS).run_validation, tag.get("triggers"))

    def structure(value: Any) -> dict[str, Any]:
        read: dict[str, Any] = Structure(nullable=False).run_validation(value)
        if not any(read["begin"].startswith(trigger) for trigger in triggers):
            raise refuse("invalid_value", "must begin with one of the triggers", "begin")
        return {name: part for name, part in read.items() if part is not None}

    structures = read_at("structures", _legacy_list(structure).run_validation, tag.get("structures"))
    return {"structures": structures, "triggers": triggers}


def _legacy_list(read: Callable[[Any], Any], if_empty: str = "") -> Array:
    return Array(read, max_items=LIMITS.max_choice_strings, if_empty=if_empty, is_required=True, null_is_absent=True)


class Structure(Record):
    parts = {"begin": Text(is_required=True), "schema": Object(), "end": Text(is_required=True)}


def constraint_options(structured: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a Constraint that the options of `structured_outputs` set."""
    structured = structured or NO_OUTPUTS
    whitespace = LOOSE_WHITESPACE if structured["disable_any_whitespace"] is False else COMPACT
    if structured["whitespace_pattern"] is not None:
        whitespace = structured["whitespace_pattern"]
    return {"whitespace": whitespace, "closes_objects": structured["disable_additional_properties"]}


GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_whitespace_pattern": "whitespace_pattern",
}
"""From older names of constraints to parts of `structured_outputs`."""
GUIDED_CONSTRAINTS = tuple(name for name, part in GUIDED.items() if part in CONSTRAINT_KEYS)


def with_guided(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the value of `structured_outputs` with that of the older fields."""
    guided = {part: values[name] for name, part in GUIDED.items() if values[name] is not None}
    structured: dict[str, Any] | None = values["structured_outputs"]
    return {**(structured or NO_OUTPUTS), **guided} if guided else structured


def guided_places(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the older field of each constraint that came in one."""
    return {GUIDED[name]: name for name in GUIDED_CONSTRAINTS if values[name] is not None}


def constraint_of(
    structured: Mapping[str, Any] | None, formatted: Constraint | None, places: Mapping[str, str] | None = None
) -> Constraint | None:
    """Return the one constraint of a request. `places` has the fields of constraints that came in older fields."""
    key = next((key for key in CONSTRAINT_KEYS if structured and structured[key] is not None), None)
    options = constraint_options(structured)
    if key is None or structured is None:
        return replace(formatted, **options) if formatted is not None else None
    kind = ConstraintKind.JSON_SCHEMA if key == "json" else ConstraintKind(key)
    source = "" if key == "json_object" else structured[key]
    return Constraint(kind, source, (places or {}).get(key, f"structured_outputs.{key}"), **options)
