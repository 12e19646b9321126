"""Resolve the `$ref`s of a JSON Schema, plain JSON pointers, and check that following them ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from engine.structured.refusal import quote, refusal
from engine.structured.schema.check import SCHEMA_LISTS, sub_schemas

IN_PLACE = tuple(name for name in SCHEMA_LISTS if name != "prefixItems")
"""Keywords whose schemas apply to the very same value."""


class References:
    """The references of one schema document."""

    def __init__(self, root: Any, param: str) -> None:
        self._root = root
        self._param = param

    def resolve(self, reference: str) -> Any:
        """Return the schema that a `$ref` names. Raises RequestError."""
        pointer = unquote(reference[1:])
        if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
            raise refusal(
                self._param,
                f"$ref {quote(reference)} cannot be followed where it stands; write the JSON pointer of its schema",
            )
        node = self._root
        for token in pointer.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and token in node:
                node = node[token]
            elif isinstance(node, list) and token.isdecimal() and int(token) < len(node):
                node = node[int(token)]
            else:
                raise refusal(self._param, f"$ref {quote(reference)} leads nowhere in the schema")
        return node

    def target(self, schema: Any) -> Any:
        """Return the schema, or the target of one that only refers to another; follows chains.

        Never loops after `check_progress`.
        """
        while (
            isinstance(schema, dict)
            and "$ref" in schema
            and not any(name in schema for name in ("properties", "allOf", "anyOf", "oneOf"))
        ):
            schema = self.resolve(schema["$ref"])
        return schema

    def check_targets(self) -> None:
        """Raise RequestError if some `$ref` leads nowhere."""
        for schema in self._all_schemas():
            if isinstance(schema.get("$ref"), str):
                self.resolve(schema["$ref"])

    def check_progress(self) -> None:
        """Raise RequestError if some schema is, through references and branches, part of its own definition for the
        same value.
        """
        done: set[int] = set()
        for start in self._all_schemas():
            self._search(start, done)

    def _search(self, start: Any, done: set[int]) -> None:
        open_ids: set[int] = set()
        path = [(start, iter(self._same_value(start)))]
        open_ids.add(id(start))
        while path:
            schema, following = path[-1]
            successor = next(following, None)
            if successor is None:
                path.pop()
                open_ids.discard(id(schema))
                done.add(id(schema))
            elif id(successor) in open_ids:
                raise refusal(
                    self._param,
                    "a $ref leads back to itself without an object or array between; such a schema says nothing",
                )
            elif id(successor) not in done:
                open_ids.add(id(successor))
                path.append((successor, iter(self._same_value(successor))))

    def _same_value(self, schema: Any) -> list[Any]:
        if not isinstance(schema, dict):
            return []
        found = [self.resolve(schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
        found += [branch for name in IN_PLACE for branch in schema.get(name, ())]
        return [entry for entry in found if isinstance(entry, dict)]

    def _all_schemas(self) -> Iterator[Any]:
        waiting = [self._root]
        while waiting:
            schema = waiting.pop()
            if isinstance(schema, dict):
                yield schema
                waiting += sub_schemas(schema)
