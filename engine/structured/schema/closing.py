"""Close object schemas that list properties without `additionalProperties`, as the grammars of other servers do.

JSON Schema admits unlisted properties unless `additionalProperties` forbids them, and a model that may add properties
goes on adding them. Schemas of one value count together: a schema, its references and its `allOf`. If one of them has
`additionalProperties`, nothing is closed. Otherwise the names in their `properties`, `required` and `patternProperties`
are admitted, and with a branch of `anyOf` or `oneOf` the names of that branch too. rewrite.py calls this with checked
schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.structured.schema.check import with_sub_schemas
from engine.structured.schema.references import References

Schema = dict[str, Any]
Change = Callable[[Any], Any]
CHOICES = ("anyOf", "oneOf")
TOGETHER = ("$ref", "allOf", *CHOICES)
OF_OBJECTS = ("properties", "patternProperties", "additionalProperties", "required", *TOGETHER)


@dataclass(slots=True)
class _Names:
    """The property names in the schemas of one value.

    `lists`: one has `properties`. `is_open`: one has `additionalProperties`. `has_choices`: one has branches.
    """

    properties: dict[str, None] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    lists: bool = False
    is_open: bool = False
    has_choices: bool = False

    def add(self, other: _Names) -> None:
        self.properties |= other.properties
        self.patterns |= other.patterns
        self.lists = self.lists or other.lists
        self.is_open = self.is_open or other.is_open
        self.has_choices = self.has_choices or other.has_choices


def closed(root: Schema, references: References, check: Callable[[Any], None]) -> Schema:
    """Return the schema with its objects closed. Its references lead to new definitions.

    `check` is called for referenced schemas.
    """
    return _Closer(references, check).document(root)


class _Closer:
    """The closing of one document.

    A definition has two forms: closed where it is the whole schema of a value, and open where it is a part.
    """

    def __init__(self, references: References, check: Callable[[Any], None]) -> None:
        self._references = references
        self._check = check
        self._definitions: dict[tuple[str, bool], str] = {}
        self._waiting: list[tuple[str, bool]] = []
        self._targets: dict[str, Any] = {}
        self._known: dict[tuple[int, bool], _Names] = {}

    def document(self, root: Schema) -> Schema:
        result = self._value(root)
        definitions: Schema = {}
        while self._waiting:
            reference, is_part = self._waiting.pop()
            target = self._target(reference)
            definitions[self._definitions[reference, is_part]] = self._part(target) if is_part else self._value(target)
        return {**result, "$defs": definitions}

    def _value(self, schema: Any, outer: _Names | None = None) -> Any:
        """Return the form of the whole schema of a value.

        `outer` has the names that an object has listed around this branch.
        """
        if not isinstance(schema, dict):
            return schema
        outer = outer or _Names()
        of_objects = [name for name in OF_OBJECTS if name in schema]
        if of_objects == ["allOf"] and len(schema["allOf"]) == 1:
            return self._rebuilt(schema, "allOf", lambda part: self._value(part, outer))
        if of_objects == ["$ref"] and not (outer.lists or outer.properties or outer.patterns):
            return self._rebuilt(schema, is_part=False)
        names = self._names(schema, with_choices=False)
        choices = [name for name in CHOICES if name in schema]
        has_hidden = any(self._names(part, with_choices=False).has_choices for part in self._together(schema))
        if len(choices) == 1 and not has_hidden and not names.is_open:
            around = _Names()
            around.add(outer)
            around.add(names)
            return self._rebuilt(schema, choices[0], lambda branch: self._value(branch, around))
        return self._closed(self._part(schema), self._names(schema), outer)

    def _part(self, schema: Any) -> Any:
        """Return the form of a schema that stands beside others of the same value: the values inside it are closed, but
        not itself.
        """
        return self._rebuilt(schema) if isinstance(schema, dict) else schema

    def _rebuilt(self, schema: Schema, name: str = "", change: Change | None = None, *, is_part: bool = True) -> Schema:
        """Return a copy: values inside are closed, `change` makes the schemas in `name`, others of the same value are
        parts.
        """

        def changed(inner: Any, place: tuple[str | int, ...]) -> Any:
            if change is not None and place[0] == name:
                return change(inner)
            return self._part(inner) if place[0] in TOGETHER else self._value(inner)

        result = with_sub_schemas(
            {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}, changed
        )
        if "$ref" in schema:
            result["$ref"] = self._reference(schema["$ref"], is_part)
        return result

    def _reference(self, reference: str, is_part: bool) -> str:
        """Return the reference to that form of its target."""
        key = reference, is_part
        if key not in self._definitions:
            self._definitions[key] = f"c{len(self._definitions)}"
            self._waiting.append(key)
        return f"#/$defs/{self._definitions[key]}"

    def _closed(self, part: Schema, names: _Names, outer: _Names) -> Schema:
        """Return the schema closed to all names, if properties are listed and it is not open."""
        if names.is_open or not (names.lists or outer.lists):
            return part
        own, own_patterns = part.get("properties", {}), part.get("patternProperties", {})
        listed = {name: own.get(name, True) for name in (*outer.properties, *names.properties)}
        patterns = {name: own_patterns.get(name, True) for name in (*outer.patterns, *names.patterns)}
        return {
            **part,
            "properties": listed,
            **({"patternProperties": patterns} if patterns else {}),
            "additionalProperties": False,
        }

    def _names(self, schema: Any, *, with_choices: bool = True) -> _Names:
        """Return the names in a schema and all that goes with it; `with_choices` includes branches of which only one
        may hold.
        """
        key = id(schema), with_choices
        if key in self._known:
            return self._known[key]
        names = _Names()
        if isinstance(schema, dict):
            for part in self._together(schema):
                names.add(self._names(part, with_choices=with_choices))
            names.add(_own_names(schema))
            for branch in (branch for name in CHOICES if with_choices for branch in schema.get(name, ())):
                names.add(self._names(branch))
        self._known[key] = names
        return names

    def _together(self, schema: Schema) -> list[Any]:
        """Return the schemas that always hold together with this one."""
        return [*([self._target(schema["$ref"])] if "$ref" in schema else []), *schema.get("allOf", ())]

    def _target(self, reference: str) -> Any:
        """Return the schema of a reference, checked, as it may stand where no schemas are looked for."""
        if reference not in self._targets:
            self._targets[reference] = self._references.resolve(reference)
            self._check(self._targets[reference])
        return self._targets[reference]


def _own_names(schema: Schema) -> _Names:
    return _Names(
        properties=dict.fromkeys((*schema.get("properties", ()), *schema.get("required", ()))),
        patterns=dict.fromkeys(schema.get("patternProperties", ())),
        lists="properties" in schema,
        is_open="additionalProperties" in schema,
        has_choices=any(name in schema for name in CHOICES),
    )
