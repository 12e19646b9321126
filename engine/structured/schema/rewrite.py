"""Rewrite a checked JSON Schema into one that llguidance enforces exactly.

Annotations are dropped, patterns anchored, references made plain. `oneOf` of exclusive branches becomes `anyOf`.
Property names and counts that llguidance cannot hold are spelled out.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import combinations
from typing import Any

from engine.config import StructuredLimits
from engine.structured.grammar.expressions import ANY_CHARACTER, Expression, Repeat
from engine.structured.refusal import quote, refusal
from engine.structured.regex.reader import read_regex
from engine.structured.regex.rust import write_regex
from engine.structured.schema.check import BOUNDS, COUNTS, check_schema, with_sub_schemas
from engine.structured.schema.closing import closed
from engine.structured.schema.disjoint import Disjointness
from engine.structured.schema.formats import NATIVE, WRITTEN
from engine.structured.schema.references import References
from engine.structured.schema.resources import plain_references

COPIED = ("type", "enum", "const", "required", *BOUNDS, "multipleOf")
VALUE_COUNTS = [name for name in COUNTS if not name.endswith("Properties")]
MAX_LEVELS = 16
"""Levels in one piece of a schema. A level takes up to three brackets."""
MAX_VARIANTS = 256
"""The most variants of an object that counting its properties may need."""
NAME_KEYWORDS = {"type", "pattern", "enum", "const", "minLength", "maxLength"}

Schema = dict[str, Any]


def rewrite_schema(root: Any, limits: StructuredLimits, param: str, *, closes_objects: bool = True) -> Any:
    """Return the equivalent schema, with its objects closed if `closes_objects`.

    Raises RequestError for what cannot be enforced.
    """
    check_schema(root, limits, param, is_enforced=True)
    root = plain_references(root, param)
    references = References(root, param)
    references.check_progress()
    if closes_objects and isinstance(root, dict):
        root = closed(root, references, partial(check_schema, limits=limits, param=param, is_enforced=True))
        references = References(root, param)
    return _Rewriter(references, limits, param).document(root)


class _Rewriter:
    """The rewriting of one document. `definitions` are the targets of references met so far, by number."""

    def __init__(self, references: References, limits: StructuredLimits, param: str) -> None:
        self._references = references
        self._limits = limits
        self._param = param
        self._numbers: dict[str, int] = {}
        self._waiting: list[str] = []

    def document(self, root: Any) -> Any:
        result = self._schema(root)
        definitions = {}
        while self._waiting:
            reference = self._waiting.pop()
            target = self._references.resolve(reference)
            check_schema(target, self._limits, self._param, is_enforced=True)
            definitions[f"r{self._numbers[reference]}"] = self._schema(target)
        result = forbid_endless(result, definitions)
        return hoisted(result | {"$defs": definitions} if definitions and isinstance(result, dict) else result)

    def _schema(self, schema: Any) -> Any:
        if isinstance(schema, bool):
            return schema
        result: Schema = {name: schema[name] for name in COPIED if name in schema}
        result |= {name: int(schema[name]) for name in VALUE_COUNTS if name in schema}
        if schema.get("pattern"):
            result["pattern"] = self._pattern(schema["pattern"])
        if schema.get("format") in NATIVE:
            result["format"] = schema["format"]
        if "$ref" in schema:
            result["$ref"] = self._reference(schema["$ref"])
        if "items" in schema:
            result["items"] = self._schema(schema["items"])
        if "prefixItems" in schema:
            result["prefixItems"] = [self._schema(item) for item in schema["prefixItems"]]
        variants = self._objects(schema)
        result |= variants[0] if len(variants) == 1 else {}
        branches = self._branches(schema) + ([{"anyOf": variants}] if len(variants) > 1 else [])
        return self._with_branches(result, branches)

    def _branches(self, schema: Schema) -> list[Any]:
        """Return the schemas that must hold too."""
        branches: list[Any] = [self._schema(part) for part in schema.get("allOf", ())]
        if schema.get("format") in WRITTEN:
            branches.append(WRITTEN[schema["format"]])
        for name in ("anyOf", "oneOf"):
            if name in schema:
                if name == "oneOf":
                    self._check_exclusive(schema[name])
                branches.append({"anyOf": [self._schema(part) for part in schema[name]]})
        return branches

    def _with_branches(self, result: Schema, branches: list[Any]) -> Schema:
        if len(branches) == 1 and isinstance(branches[0], dict) and branches[0].keys() == {"anyOf"}:
            return result | branches[0]
        return result | {"allOf": branches} if branches else result

    def _check_exclusive(self, branches: list[Any]) -> None:
        """Raise RequestError for branches of which one value may satisfy two."""
        disjointness = Disjointness(self._references)
        for first, second in combinations(range(len(branches)), 2):
            if not disjointness.are_disjoint(branches[first], branches[second]):
                raise refusal(
                    self._param,
                    f"the branches {first} and {second} of a oneOf may both hold, which cannot be enforced; use anyOf, "
                    "or give them different types or a required property with different constants",
                )

    def _reference(self, reference: str) -> str:
        if reference not in self._numbers:
            self._numbers[reference] = len(self._numbers)
            self._waiting.append(reference)
        return f"#/$defs/r{self._numbers[reference]}"

    def _pattern(self, pattern: str) -> str:
        return anchored(read_regex(pattern, self._limits, self._param, searches=True))

    # Objects

    def _objects(self, schema: Schema) -> list[Schema]:
        """Return the part about objects, as one schema or as variants of which one must hold."""
        result: Schema = {}
        if "properties" in schema:
            result["properties"] = {name: self._schema(value) for name, value in schema["properties"].items()}
        if "patternProperties" in schema:
            result["patternProperties"] = {
                self._pattern(pattern): self._schema(value)
                for pattern, value in schema["patternProperties"].items()
                if pattern
            }
            if "" in schema["patternProperties"]:
                result["patternProperties"][anchored(Repeat(ANY_CHARACTER))] = self._schema(
                    schema["patternProperties"][""]
                )
        if "additionalProperties" in schema:
            result["additionalProperties"] = self._schema(schema["additionalProperties"])
        if "propertyNames" in schema:
            self._restrict_names(result, self._references.target(schema["propertyNames"]))
        least, most = schema.get("minProperties"), schema.get("maxProperties")
        if least is None and most is None:
            return [result]
        return self._counted(
            result, list(schema.get("required", ())), int(least or 0), None if most is None else int(most)
        )

    def _restrict_names(self, result: Schema, names: Any) -> None:
        """Restrict property names to a schema of names."""
        if names is True:
            return
        if names is False:
            names = {"enum": []}
        unknown = [
            name for name in names if name not in NAME_KEYWORDS and name not in ("title", "description", "$comment")
        ]
        if unknown:
            raise refusal(
                self._param, f"propertyNames can use {', '.join(sorted(NAME_KEYWORDS))} only, got {quote(unknown[0])}"
            )
        if result.get("patternProperties"):
            raise refusal(
                self._param,
                "propertyNames cannot be enforced beside patternProperties; put the names into the patterns",
            )
        expression, listed = self._names(names)
        properties = result.setdefault("properties", {})
        others = result.get("additionalProperties", {})
        fits = None if expression is None else _python_regex(names)
        for name in properties:
            if (listed is not None and name not in listed) or (fits is not None and not fits(name)):
                properties[name] = False
        result["additionalProperties"] = False
        if others is False:
            return
        if listed is not None:
            for name in listed:
                properties.setdefault(name, others)
        elif expression is not None:
            result["patternProperties"] = {anchored(expression): others}
        else:
            result["additionalProperties"] = others

    def _names(self, names: Schema) -> tuple[Expression | None, list[str] | None]:
        """Return the expression that names must match, or the list of them; neither for any name."""
        types = names.get("type", "string")
        if types != "string" and "string" not in types:
            return None, []
        values = [names["const"]] if "const" in names else names.get("enum")
        if values is not None:
            fits = _python_regex(names)
            return None, [value for value in values if isinstance(value, str) and fits(value)]
        least, most = int(names.get("minLength", 0)), names.get("maxLength")
        has_length = least > 0 or most is not None
        if names.get("pattern"):
            if has_length:
                raise refusal(
                    self._param,
                    "propertyNames cannot have both a pattern and a length; put the length into the pattern",
                )
            return read_regex(names["pattern"], self._limits, self._param, searches=True), None
        return (Repeat(ANY_CHARACTER, least, None if most is None else int(most)) if has_length else None), None

    def _counted(self, result: Schema, required: list[str], least: int, most: int | None) -> list[Schema]:
        """Restrict an object to a number of properties: by llguidance if all listed ones are required, else by one
        variant per choice.
        """
        properties = {name: value for name, value in result.get("properties", {}).items() if value is not False}
        optional = [name for name in properties if name not in required]
        is_open = result.get("additionalProperties") is not False or bool(result.get("patternProperties"))
        if least <= len(required):
            least = 0
        if most is not None and not is_open and most >= len(properties):
            most = None
        if least == 0 and most is None:
            return [result]
        bounds = ({"minProperties": least} if least else {}) | ({"maxProperties": most} if most is not None else {})
        if is_open:
            self._check_distinct(least - len(required) - len(optional))
        if not optional and is_open:
            return [result | bounds]
        variants = [
            self._variant(result, required, set(chosen), optional) | (bounds if is_open else {})
            for chosen in self._choices(optional, len(required), least, most, is_open)
        ]
        return (
            [variant | {"required": [*required, *variant["required"]]} for variant in variants]
            if variants
            else [{"enum": []}]
        )

    def _choices(
        self, optional: list[str], num_required: int, least: int, most: int | None, is_open: bool
    ) -> list[tuple[str, ...]]:
        if 2 ** len(optional) > MAX_VARIANTS:
            raise refusal(
                self._param,
                f"minProperties and maxProperties can be enforced beside at most {MAX_VARIANTS.bit_length() - 1} "
                f"optional properties, got {len(optional)}; list more of them in required",
            )
        chosen = [choice for size in range(len(optional) + 1) for choice in combinations(optional, size)]
        return [
            choice
            for choice in chosen
            if (most is None or num_required + len(choice) <= most)
            and num_required + len(choice) >= least - int(is_open)
        ]

    def _check_distinct(self, num_unlisted: int) -> None:
        """Check that at most one unlisted name is needed: a grammar cannot keep a second one from being the same."""
        if num_unlisted > 1:
            raise refusal(
                self._param,
                f"minProperties asks for {num_unlisted} properties that are not listed, of which 1 can be enforced, "
                "as a name may come again; list more names in properties or required",
            )

    def _variant(self, result: Schema, required: list[str], chosen: set[str], optional: list[str]) -> Schema:
        """Return the object that has exactly these of the optional properties."""
        properties = {
            name: value if name in chosen or name not in optional else False
            for name, value in result.get("properties", {}).items()
        }
        return result | {"properties": properties, "required": [name for name in optional if name in chosen]}


def anchored(expression: Expression) -> str:
    """Return the expression as a pattern that must match a whole string."""
    return f"^(?:{write_regex(expression)})$"


def _python_regex(names: Schema) -> Any:
    """Return a test of one property name. Patterns that Python cannot read were refused before."""
    pattern = re.compile(names["pattern"]) if names.get("pattern") else None
    least, most = names.get("minLength", 0), names.get("maxLength", float("inf"))
    return lambda name: (pattern is None or pattern.search(name) is not None) and least <= len(name) <= most


# Definitions without a finite value: every value holds another of its own kind.


def forbid_endless(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return the schema, False if no finite value satisfies it. Such definitions become False in place."""
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
    """Return True if a finite value may satisfy this schema, given that only these definitions have any."""
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


# Deep schemas.


def hoisted(root: Any) -> Any:
    """Return the equivalent flat schema: parts that are nested far down become `$defs` named `d0`, `d1`, ….

    The library reads at most 128 brackets deep. No rewritten schema has definitions of these names yet.
    """
    pieces: dict[str, Any] = {}

    def cut(schema: Any, levels: int) -> Any:
        """Return the schema, or a reference to it if it stands too deep."""
        if not isinstance(schema, dict):
            return schema
        is_far = levels >= MAX_LEVELS and schema.keys() != {"$ref"}
        result = with_sub_schemas(schema, lambda part, _: cut(part, 1 if is_far else levels + 1))
        if not is_far:
            return result
        name = f"d{len(pieces)}"
        pieces[name] = result
        return {"$ref": f"#/$defs/{name}"}

    result = cut(root, 0)
    return result | {"$defs": result.get("$defs", {}) | pieces} if pieces else result
