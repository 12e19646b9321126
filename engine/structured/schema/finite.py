"""Which definitions of a rewritten schema have finite values at all? One whose every value holds another of its own kind has none."""

from __future__ import annotations

from typing import Any


def forbid_endless(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema, False if nothing finite satisfies it; definitions of which that is true become False in place."""
    finite: set[str] = set()
    waiting = list(definitions)
    while True:
        found = [name for name in waiting if _is_finite(definitions[name], finite)]
        if not found:
            break
        finite.update(found)
        waiting = [name for name in waiting if name not in finite]
    for name in waiting:
        definitions[name] = False
    return schema if _is_finite(schema, finite) else False


def _is_finite(schema: Any, finite: set[str]) -> bool:
    """Whether a finite value may satisfy this schema, if only these definitions have any."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and schema["$ref"].rpartition("/")[2] not in finite:
        return False
    if not all(_is_finite(part, finite) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_is_finite(part, finite) for part in schema["anyOf"]):
        return False
    types = schema.get("type")
    if types in ("object", ["object"]):
        properties = schema.get("properties", {})
        return all(_is_finite(properties[name], finite) for name in schema.get("required", ()) if name in properties)
    if types in ("array", ["array"]):
        prefix, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        items = prefix[:least] + ([schema.get("items", True)] if least > len(prefix) else [])
        return all(_is_finite(item, finite) for item in items)
    return True
