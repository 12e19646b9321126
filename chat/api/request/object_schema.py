"""Whether a JSON Schema admits an object, as that of a function's arguments must. Looks at what is said of the value itself, not at its
members; what cannot be told this way is taken to admit one. Called by tools.py with schemas within the limits of size and depth.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from chat.api.request.fields import echo, refuse

MAX_HOPS = 100
"""How far references and branches are followed."""
NOWHERE = object()


def object_check(root: dict[str, Any]) -> None:
    """Raise ValidationError, at the keyword at fault, for a schema that no object satisfies or whose own reference leads nowhere."""
    reference = root.get("$ref")
    if isinstance(reference, str) and reference.startswith(("#/", "#%2F")) and _target(root, reference) is NOWHERE:
        raise refuse("invalid_value", f"leads nowhere in the schema: {echo(reference)}", "$ref")
    for name in ("$ref", "type", "const", "enum", "allOf", "anyOf", "oneOf"):
        if name in root and not _Search(root).admits({name: root[name]}):
            raise refuse("invalid_value", "must admit an object: the arguments of a function are one", name)


class _Search:
    """Looks at each schema once; one that leads back to itself is taken to admit an object there."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, bool] = {}

    def admits(self, schema: Any, hops: int = MAX_HOPS) -> bool:
        if not isinstance(schema, dict) or hops == 0:
            return schema is not False
        if id(schema) not in self._known:
            self._known[id(schema)] = True
            self._known[id(schema)] = _says_object(schema) and self._inner_admit(schema, hops - 1)
        return self._known[id(schema)]

    def _inner_admit(self, schema: dict[str, Any], hops: int) -> bool:
        """What a schema refers to, all of `allOf`, and one of each of the others."""
        reference = schema.get("$ref")
        if isinstance(reference, str) and not self.admits(_target(self._root, reference), hops):
            return False
        if not all(self.admits(branch, hops) for branch in _branches(schema, "allOf")):
            return False
        choices = [branches for name in ("anyOf", "oneOf") if (branches := _branches(schema, name))]
        return all(any(self.admits(branch, hops) for branch in branches) for branches in choices)


def _says_object(schema: dict[str, Any]) -> bool:
    """Whether type and values leave room for an object."""
    types = schema.get("type", "object")
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    has_object = not isinstance(values, list) or any(isinstance(value, dict) for value in values)
    return has_object and "object" in (types if isinstance(types, list) else [types])


def _branches(schema: dict[str, Any], name: str) -> list[Any]:
    branches = schema.get(name)
    return branches if isinstance(branches, list) else []


def _target(root: dict[str, Any], reference: str) -> Any:
    """What a JSON pointer within the schema leads to; references of other kinds may be anything."""
    pointer = unquote(reference[1:])
    if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
        return {}
    node: Any = root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        elif isinstance(node, dict) and step in node:
            node = node[step]
        else:
            return NOWHERE
    return node
