"""Decide whether a value can satisfy two schemas at once. A grammar can hold `oneOf` only if its branches exclude each
other.

Answers "surely not" or "perhaps", from types, values, bounds, and properties that distinguish objects.
"""

from __future__ import annotations

import math
from typing import Any

from engine.structured.schema.check import TYPES
from engine.structured.schema.references import References

MAX_DEPTH = 12


class Disjointness:
    """The decision over the schemas of one document."""

    def __init__(self, references: References) -> None:
        self._references = references

    def are_disjoint(self, first: Any, second: Any, depth: int = 0) -> bool:
        """Return True if surely no value satisfies both."""
        first, second = self._references.target(first), self._references.target(second)
        if first is False or second is False:
            return True
        if depth > MAX_DEPTH or not isinstance(first, dict) or not isinstance(second, dict):
            return False
        return (
            self._by_branches(first, second, depth)
            or self._by_branches(second, first, depth)
            or self._by_values(first, second)
            or self._by_values(second, first)
            or all(self._by_type(kind, first, second, depth) for kind in _types(first) & _types(second))
        )

    def _by_branches(self, schema: dict[str, Any], other: dict[str, Any], depth: int) -> bool:
        parts = [*schema.get("allOf", ()), *([self._references.resolve(schema["$ref"])] if "$ref" in schema else [])]
        if any(self.are_disjoint(part, other, depth + 1) for part in parts):
            return True
        return any(
            all(self.are_disjoint(branch, other, depth + 1) for branch in schema[name])
            for name in ("anyOf", "oneOf")
            if name in schema
        )

    def _by_values(self, schema: dict[str, Any], other: dict[str, Any]) -> bool:
        values = _values(schema)
        return values is not None and all(self._excludes(other, value) for value in values)

    def _excludes(self, schema: dict[str, Any], value: Any) -> bool:
        """Return True if a schema surely forbids this value."""
        allowed = _values(schema)
        if allowed is not None:
            return not any(_are_equal(value, entry) for entry in allowed)
        kind = _type_of(value)
        if kind not in _types(schema):
            return True
        if kind in ("number", "integer"):
            low, high = _interval(schema)
            return not low <= value <= high
        return kind == "object" and any(name not in value for name in schema.get("required", ()))

    def _by_type(self, kind: str, first: dict[str, Any], second: dict[str, Any], depth: int) -> bool:
        if kind in ("number", "integer"):
            return _are_apart(_interval(first), _interval(second))
        if kind == "string":
            return _are_apart(_counts(first, "Length"), _counts(second, "Length"))
        if kind == "array":
            return _are_apart(_counts(first, "Items"), _counts(second, "Items"))
        if kind == "object":
            return self._are_objects_disjoint(first, second, depth)
        return False

    def _are_objects_disjoint(self, first: dict[str, Any], second: dict[str, Any], depth: int) -> bool:
        required, other_required = set(first.get("required", ())), set(second.get("required", ()))
        if any(_forbids(second, name) for name in required) or any(_forbids(first, name) for name in other_required):
            return True
        ours, theirs = first.get("properties", {}), second.get("properties", {})
        shared = [name for name in required | other_required if name in ours and name in theirs]
        return any(
            self.are_disjoint(ours[name], theirs[name], depth + 1)
            for name in shared
            if name in required and name in other_required
        )


def _types(schema: dict[str, Any]) -> set[str]:
    """Return the types that a schema allows. An integer is a number too."""
    values = _values(schema)
    stated = schema.get("type", TYPES) if values is None else [_type_of(value) for value in values]
    types = {stated} if isinstance(stated, str) else set(stated)
    return types | {"integer"} if "number" in types else types


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema.get("enum")


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object", type(None): "null"}
    return names[type(value)]


def _are_equal(first: Any, second: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_are_equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_are_equal(first[name], second[name]) for name in first)
    return bool(first == second)


def _interval(schema: dict[str, Any]) -> tuple[float, float]:
    low = max(schema.get("minimum", -math.inf), math.nextafter(schema.get("exclusiveMinimum", -math.inf), math.inf))
    high = min(schema.get("maximum", math.inf), math.nextafter(schema.get("exclusiveMaximum", math.inf), -math.inf))
    return (low if low > -1.7e308 else -math.inf, high if high < 1.7e308 else math.inf)


def _counts(schema: dict[str, Any], what: str) -> tuple[float, float]:
    return schema.get(f"min{what}", 0), schema.get(f"max{what}", math.inf)


def _are_apart(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first[1] < second[0] or second[1] < first[0]


def _forbids(schema: dict[str, Any], name: str) -> bool:
    """Return True if an object may not have this property."""
    listed = schema.get("properties", {})
    if name in listed:
        return listed[name] is False
    return schema.get("additionalProperties") is False and not schema.get("patternProperties")
