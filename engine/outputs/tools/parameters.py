"""Converts values that a model wrote as plain text into JSON of the declared types. Evaluates nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import NoReturn

from engine.api.request import Json, Tool
from engine.outputs.tools.literals import MAX_CHARACTERS, MAX_DEPTH, literal_to_json

STRING = frozenset({"string"})
_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_TYPE_OF = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*+)(\.[0-9]++)?+([eE][+-]?[0-9]++)?+")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*+)")
MAX_HOPS = 16
"""The most references and alternatives that are followed for a type."""


class ParameterTypes:
    """The declared types of one tool's parameters."""

    def __init__(self, tool: Tool) -> None:
        self._root = tool.parameters if isinstance(tool.parameters, dict) else {}
        properties = self._root.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}

    def types_of(self, name: str) -> frozenset[str]:
        """Return the JSON types that the parameter may have; `STRING` if none is declared."""
        return self._types(self._properties.get(name, self._root.get("additionalProperties")), MAX_HOPS) or STRING

    def _types(self, schema: Json, hops: int) -> frozenset[str]:
        if not isinstance(schema, dict) or hops == 0:
            return frozenset()
        declared = schema.get("type")
        if isinstance(declared, str):
            declared = [declared]
        if isinstance(declared, list):
            return _TYPES.intersection(word for word in declared if isinstance(word, str))
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list):
                return frozenset[str]().union(
                    *(self._types(branch, min(hops - 1, 3)) for branch in branches[:MAX_HOPS])
                )
        if "const" in schema:
            return frozenset({_type_of(schema["const"])})
        if isinstance(schema.get("enum"), list):
            return frozenset(_type_of(value) for value in _items(schema["enum"]))
        if isinstance(schema.get("$ref"), str):
            return self._types(self._resolve(str(schema["$ref"])), hops - 1)
        return (
            frozenset({"object"})
            if "properties" in schema
            else frozenset({"array"})
            if "items" in schema
            else frozenset()
        )

    def _resolve(self, reference: str) -> Json:
        """Return the target of a reference within the schema, None for any other reference."""
        if not reference.startswith("#"):
            return None
        node: Json = self._root
        for step in reference[1:].split("/")[1:]:
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return node


def _type_of(value: Json) -> str:
    return _TYPE_OF.get(type(value), "string")


def _items(value: Json) -> Iterable[Json]:
    return value if isinstance(value, list) else ()


def text_to_json(text: str, types: frozenset[str]) -> str:
    """Return the value as JSON of the first type that fits; as a string if none does."""
    stripped = text.strip()
    word = stripped.lower()
    if "null" in types and word in ("null", "none"):
        return "null"
    if "boolean" in types and word in ("true", "false"):
        return word
    if "number" in types and _NUMBER.fullmatch(stripped) and math.isfinite(float(stripped)):
        return stripped
    if "integer" in types and _INTEGER.fullmatch(stripped):
        return stripped
    if types & {"object", "array"} and stripped[:1] in ("{", "["):
        return json_text(stripped) or literal_to_json(stripped) or quote(text)
    if "string" not in types and word in ("null", "none"):
        return "null"
    return quote(text)


def quote(text: str) -> str:
    """Return the text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def json_text(text: str) -> str | None:
    """Return the text itself if it is JSON within the caps on size and depth, else None."""
    if len(text) > MAX_CHARACTERS or not is_shallow(text):
        return None
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=_check_finite)
    except ValueError:
        return None
    return text


def is_shallow(text: str) -> bool:
    """Return True if at most `MAX_DEPTH` brackets are open at once.

    Brackets in strings count too, so the result errs towards False.
    """
    depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif character in "]}":
            depth -= 1
    return True


def _check_finite(number: str) -> None:
    if not math.isfinite(float(number)):
        _refuse(number)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
