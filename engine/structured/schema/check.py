"""Check that a JSON Schema is valid and within the limits. Looks at every schema within a schema once, without
following references.

With `is_enforced` it refuses by name keywords that no grammar can hold, and numbers that would make one too large. A
schema that is only shown to the model may have them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from engine.api.errors import RequestError
from engine.config import StructuredLimits
from engine.structured.refusal import quote, refusal
from engine.structured.regex.reader import check_regex, read_regex

TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
COUNTS = ("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMAS = ("additionalProperties", "propertyNames", "items")
Path = tuple[str | int, ...]
"""The names and indexes that lead from a schema to a place in it."""
REFUSED = (
    "not",
    "if",
    "then",
    "else",
    "contains",
    "minContains",
    "maxContains",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "additionalItems",
    "$dynamicRef",
    "$recursiveRef",
)
"""Keywords that would have to be dropped. `uniqueItems` is one too if it is true."""


def check_schema(schema: Any, limits: StructuredLimits, param: str, *, is_enforced: bool) -> None:
    """Raise RequestError for a schema that is invalid, too large, or cannot be enforced."""
    for _, error in _Check(limits, param, is_enforced).faults(schema):
        raise error


def schema_faults(
    schema: Any, limits: StructuredLimits, *, is_enforced: bool, most: int
) -> list[tuple[Path, RequestError]]:
    """Return what `check_schema` refuses, at most `most` places, the outer ones first."""
    return list(islice(_Check(limits, "", is_enforced).faults(schema), most))


def sub_schemas(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas directly inside this one."""
    for _, inner in placed_sub_schemas(schema):
        yield inner


def placed_sub_schemas(schema: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the schemas directly inside this one, each behind the path to it. Passes over what holds no schemas."""
    for name in SCHEMA_MAPS:
        if isinstance(schema.get(name), dict):
            yield from (((name, key), value) for key, value in schema[name].items())
    for name in SCHEMA_LISTS:
        if isinstance(schema.get(name), list):
            yield from (((name, index), value) for index, value in enumerate(schema[name]))
    for name in SCHEMAS:
        if name in schema:
            yield (name,), schema[name]


def with_sub_schemas(schema: dict[str, Any], change: Callable[[Any, Path], Any]) -> dict[str, Any]:
    """Return a copy in which each schema directly inside is replaced by `change(schema, path to it)`.

    Values and names stay.
    """
    result = dict(schema)
    for name in SCHEMA_MAPS:
        if isinstance(schema.get(name), dict):
            result[name] = {key: change(value, (name, key)) for key, value in schema[name].items()}
    for name in SCHEMA_LISTS:
        if isinstance(schema.get(name), list):
            result[name] = [change(value, (name, index)) for index, value in enumerate(schema[name])]
    for name in SCHEMAS:
        if name in schema:
            result[name] = change(schema[name], (name,))
    return result


class _Check:
    """A walk over a schema that counts what it has seen."""

    def __init__(self, limits: StructuredLimits, param: str, is_enforced: bool) -> None:
        self._limits = limits
        self._param = param
        self._is_enforced = is_enforced
        self._num_nodes = 0

    def faults(self, root: Any) -> Iterator[tuple[Path, RequestError]]:
        """Yield the path to each keyword or schema at fault, and the error."""
        waiting: deque[tuple[Path, Any]] = deque([((), root)])
        while waiting:
            path, schema = waiting.popleft()
            try:
                self._schema(schema)
            except RequestError as error:
                yield path, error
            if not isinstance(schema, dict):
                continue
            for name, value in schema.items():
                try:
                    self._keyword(name, value)
                except RequestError as error:
                    yield (*path, name), error
            waiting += (((*path, *place), inner) for place, inner in placed_sub_schemas(schema))

    def _schema(self, schema: Any) -> None:
        self._count(1)
        if not isinstance(schema, bool | dict):
            raise self._refusal(f"invalid schema: {quote(schema)} is neither an object nor a boolean")

    def _keyword(self, name: str, value: Any) -> None:
        if self._is_enforced and (name in REFUSED or (name == "uniqueItems" and value is not False)):
            raise self._refusal(
                f"the JSON Schema keyword {quote(name)} is not supported: it cannot be enforced; remove it"
            )
        if name in COUNTS:
            self._bound(name, value)
        elif name in BOUNDS:
            self._require(_is_number(value), name, "must be a number")
        elif name in KEYWORDS:
            KEYWORDS[name](self, name, value)

    def _type(self, name: str, value: Any) -> None:
        types = value if isinstance(value, list) else [value]
        known = types != [] and all(isinstance(entry, str) and entry in TYPES for entry in types)
        self._require(known and len(set(types)) == len(types), name, f"must be one or several of {', '.join(TYPES)}")

    def _enum(self, name: str, value: Any) -> None:
        self._require(isinstance(value, list) and value != [], name, "must be a list of at least one value")
        self._count(len(value))

    def _required(self, name: str, value: Any) -> None:
        is_names = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        self._require(is_names and len(set(value)) == len(value), name, "must be a list of different names")
        self._count(len(value))

    def _map(self, name: str, value: Any) -> None:
        self._require(isinstance(value, dict), name, "must be an object of schemas")
        self._count(len(value))
        if name == "patternProperties":
            for pattern in value:
                self._regex(pattern)

    def _list(self, name: str, value: Any) -> None:
        self._require(isinstance(value, list) and value != [], name, "must be a list of at least one schema")

    def _items(self, name: str, value: Any) -> None:
        self._require(not isinstance(value, list), name, "must be one schema; list the first items in prefixItems")

    def _pattern(self, name: str, value: Any) -> None:
        self._require(isinstance(value, str), name, "must be a regular expression")
        if value:
            self._regex(value)

    def _regex(self, pattern: str) -> None:
        if self._is_enforced:
            read_regex(pattern, self._limits, self._param, searches=True)
        elif pattern:
            check_regex(pattern, self._limits, self._param)

    def _multiple(self, name: str, value: Any) -> None:
        self._require(_is_number(value) and value > 0, name, "must be a number above 0")
        if self._is_enforced:
            self._require(value == int(value), name, "must be an integer to be enforced")
            self._require(value <= self._limits.schema_bound, name, f"must be at most {self._limits.schema_bound}")

    def _text(self, name: str, value: Any) -> None:
        self._require(isinstance(value, str), name, "must be a string")

    def _bound(self, name: str, value: Any) -> None:
        is_whole = _is_number(value) and value == int(value) and value >= 0
        self._require(is_whole, name, "must be an integer of at least 0")
        if self._is_enforced:
            self._require(
                value <= self._limits.schema_bound,
                name,
                f"must be at most {self._limits.schema_bound}, got {quote(value)}",
            )

    def _count(self, number: int) -> None:
        self._num_nodes += number
        if self._num_nodes > self._limits.schema_nodes:
            limit = self._limits.schema_nodes
            raise self._refusal(
                f"a schema must have at most {limit} schemas, properties, enum values and branches together"
            )

    def _require(self, is_right: bool, name: str, what: str) -> None:
        if not is_right:
            raise self._refusal(f"invalid schema: {quote(name)} {what}")

    def _refusal(self, message: str) -> RequestError:
        return refusal(self._param, message)


KEYWORDS: dict[str, Callable[[_Check, str, Any], None]] = {
    "type": _Check._type,
    "enum": _Check._enum,
    "required": _Check._required,
    "items": _Check._items,
    "pattern": _Check._pattern,
    "multipleOf": _Check._multiple,
    "format": _Check._text,
    "$ref": _Check._text,
    **dict.fromkeys(SCHEMA_MAPS, _Check._map),
    **dict.fromkeys(SCHEMA_LISTS, _Check._list),
}


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (isinstance(value, int) or math.isfinite(value))
    )
