"""Enforced schemas by keyword, and refused schemas with a word of each refusal."""

from __future__ import annotations

from itertools import combinations

INTEGER, STRING, NULL, BOOLEAN = {"type": "integer"}, {"type": "string"}, {"type": "null"}, {"type": "boolean"}
TYPES = ["string", "number", "integer", "boolean", "null", "array", "object"]
THREE = {"a": INTEGER, "b": STRING, "c": BOOLEAN}
FORMATS = ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"]
PATTERNS = [
    "^a", "b$", "^[a-z]{2,5}$", "x", "a|^b", "^(ab|cd)+$", r"^\d{3}-\d{4}$", r"^\w+$", r"^[^\s]{1,3}$", r'^"\\$',
    r"^\u00e9{2}$", r"^(?i:ab)$", r"^[\[\]]{2}$", r"^a.c$", "", r"^(?:a|b|)c$", r"^\/x$",
]  # fmt: skip


def _objects():
    for required in [[], ["a"], ["b", "c"], ["a", "b", "c"], ["z"]]:
        for additional in [None, False, True, INTEGER]:
            schema = {"type": "object", "properties": THREE, "required": required}
            if additional is False and required == ["z"]:
                continue
            yield schema if additional is None else schema | {"additionalProperties": additional}


def _counted_objects():
    for least, most in [(0, 1), (1, 2), (2, 2), (2, 3), (1, None), (3, None), (0, 0)]:
        bounds = {"minProperties": least} | ({} if most is None else {"maxProperties": most})
        for base in [
            {"type": "object"},
            {"type": "object", "additionalProperties": INTEGER},
            {"type": "object", "properties": THREE, "additionalProperties": False},
            {"type": "object", "properties": THREE},
        ]:
            if least <= 1 or "properties" in base:
                yield base | bounds
        if most is None or most > 0:
            yield {"type": "object", "properties": THREE, "required": ["b"], "additionalProperties": False} | bounds


def _named_objects():
    names = [
        {"pattern": "^[a-c]{1,2}$"}, {"enum": ["a", "q"]}, {"const": "b"}, {"minLength": 1, "maxLength": 3},
        True, False, {"type": "string"},
    ]  # fmt: skip
    for name in names:
        yield {"type": "object", "propertyNames": name}
        yield {"type": "object", "propertyNames": name, "properties": THREE}
        yield {"type": "object", "propertyNames": name, "properties": THREE, "additionalProperties": False}
        yield {"type": "object", "propertyNames": name, "additionalProperties": INTEGER}


def _arrays():
    for least, most in [(None, None), (0, 2), (2, 3), (1, 1), (None, 0), (3, None)]:
        bounds = {name: value for name, value in (("minItems", least), ("maxItems", most)) if value is not None}
        yield {"type": "array"} | bounds
        yield {"type": "array", "items": INTEGER} | bounds
        yield {"type": "array", "prefixItems": [INTEGER, STRING], "items": BOOLEAN} | bounds
        if least is None or least <= 2:
            yield {"type": "array", "prefixItems": [INTEGER, STRING], "items": False} | bounds


def _numbers():
    for kind in ("integer", "number"):
        for low, high in [(0, 9), (-5, 1234), (-20, -3), (17, None), (None, -2), (0.5, 2.25), (-1.5, 1.5), (99, 101)]:
            for names in [
                ("minimum", "maximum"),
                ("exclusiveMinimum", "exclusiveMaximum"),
                ("minimum", "exclusiveMaximum"),
            ]:
                yield {"type": kind} | {
                    name: value for name, value in zip(names, (low, high), strict=True) if value is not None
                }
    for step in (1, 2, 7, 10, 100):
        yield {"type": "integer", "multipleOf": step}
        yield {"type": "integer", "multipleOf": step, "minimum": -50, "maximum": 250}
        yield {"type": "number", "multipleOf": step}


def _strings():
    for least, most in [(0, 0), (2, 4), (None, 3), (5, None)]:
        yield STRING | {name: value for name, value in (("minLength", least), ("maxLength", most)) if value is not None}
    for pattern in PATTERNS:
        yield STRING | {"pattern": pattern}
        yield STRING | {"pattern": pattern, "maxLength": 12}
    for name in FORMATS:
        yield STRING | {"format": name}
    yield {"format": "date"}
    yield STRING | {"format": "email", "maxLength": 20}
    yield STRING | {"format": "no-such-format"}


def _combinations():
    for first, second in combinations(TYPES, 2):
        yield {"type": [first, second]}
    yield {"anyOf": [INTEGER, STRING | {"maxLength": 2}]}
    yield {"type": "object", "properties": {"a": INTEGER}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    yield {"anyOf": [INTEGER, STRING], "oneOf": [INTEGER | {"maximum": 5}, INTEGER | {"minimum": 6}]}
    yield {"oneOf": [INTEGER, STRING, NULL]}
    yield {"oneOf": [INTEGER | {"maximum": 3}, INTEGER | {"minimum": 4}, {"type": "array", "maxItems": 1}]}
    yield {"oneOf": [STRING | {"maxLength": 2}, STRING | {"minLength": 3, "maxLength": 4}]}
    yield {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}, BOOLEAN]}
    yield {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": kind}, kind: INTEGER}, "required": ["kind"]}
            for kind in ("x", "y", "z")
        ]
    }
    yield {"oneOf": [{"type": "object", "properties": {"a": False}}, {"type": "object", "required": ["a"]}]}
    yield {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"properties": {"b": STRING}, "required": ["b"]},
        ]
    }
    yield {"allOf": [INTEGER, {"minimum": 3}, {"maximum": 9}]}
    yield {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}
    yield {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}
    yield {"allOf": [STRING | {"minLength": 2}], "maxLength": 3, "type": "string"}


def _references():
    node = {
        "type": "object",
        "properties": {"v": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}},
        "required": ["v", "next"],
    }
    yield {"$defs": {"node": node | {"additionalProperties": False}}, "$ref": "#/$defs/node"}
    yield {"definitions": {"n": INTEGER}, "type": "array", "items": {"$ref": "#/definitions/n"}}
    yield {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        "additionalProperties": False,
    }
    yield {"$defs": {"a b/c": {"$ref": "#/$defs/x%25"}, "x%": INTEGER}, "$ref": "#/$defs/a%20b~1c"}
    yield {
        "type": "object",
        "properties": {"a": INTEGER | {"maximum": 3}, "b": {"$ref": "#/properties/a"}},
        "required": ["a", "b"],
    }
    yield {
        "$defs": {"n": INTEGER},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n", "minimum": 5}},
        "required": ["a"],
    }
    yield {"$defs": {"n": INTEGER, "m": {"$ref": "#/$defs/n"}}, "anyOf": [{"$ref": "#/$defs/m"}, NULL]}
    yield {"$defs": {"n": {"$anchor": "whole"} | INTEGER}, "type": "array", "items": {"$ref": "#whole"}, "minItems": 1}
    own = {
        "$id": "item",
        "$defs": {"n": BOOLEAN},
        "type": "object",
        "properties": {"b": {"$ref": "#/$defs/n"}},
        "required": ["b"],
    }
    yield {
        "$id": "http://x.example/root",
        "$defs": {"n": INTEGER, "a/b": own},
        "type": "array",
        "items": {"$ref": "item"},
        "minItems": 1,
    }
    yield {"$id": "urn:x:y", "$defs": {"n": INTEGER}, "$ref": "urn:x:y#/$defs/n"}
    yield {
        "type": "object",
        "properties": {"a": {"$ref": "#/parts/a"}},
        "required": ["a"],
        "parts": {"a": {"$ref": "#/parts/b"}, "b": NULL},
    }


def _values():
    yield from (
        {"const": value} for value in ["x", 'a"\n\\', "é😀\0/", 0, -1.5, True, None, [], {}, {"a": [1, {"b": None}]}]
    )
    yield {"enum": ["a", 1, None, True, {"a": [1, 2]}, [1, "x"], 1.5]}
    yield {"type": "integer", "enum": ["a", 1, 2.5]}
    yield {
        "type": "object",
        "properties": {"é\n": INTEGER, '"': NULL},
        "required": ["é\n", '"'],
        "additionalProperties": False,
    }
    yield {
        "type": "object",
        "patternProperties": {"^a+$": INTEGER, "^b": STRING | {"maxLength": 2}},
        "additionalProperties": False,
    }
    yield {
        "type": "object",
        "properties": {"ab": INTEGER},
        "patternProperties": {"^a": {"minimum": 5}},
        "additionalProperties": False,
    }
    yield {"type": "object", "patternProperties": {"^x": NULL}}
    yield from (
        {},
        {
            "title": "t",
            "description": "d",
            "default": 1,
            "examples": [1],
            "$schema": "s",
            "$id": "i",
            "x-own": {"not": 1},
        },
    )
    yield from (
        {"minimum": 5},
        {"properties": {"a": INTEGER}},
        {"required": ["a"]},
        {"items": NULL},
        {"minLength": 2},
        {"maxProperties": 1},
    )
    yield {
        "type": "array",
        "uniqueItems": False,
        "items": {"type": "array", "items": True, "maxItems": 1},
        "maxItems": 2,
    }


ENFORCED = [
    *({"type": kind} for kind in TYPES),
    *_objects(),
    *_counted_objects(),
    *_named_objects(),
    *_arrays(),
    *_numbers(),
    *_strings(),
    *_combinations(),
    *_references(),
    *_values(),
]

REFUSED = [
    ({"type": "foo"}, "type"),
    ({"type": []}, "type"),
    ({"type": 5}, "type"),
    ({"enum": []}, "enum"),
    ({"required": "a"}, "required"),
    ({"required": ["a", "a"]}, "required"),
    ({"properties": []}, "properties"),
    ({"properties": {"a": 5}}, "neither an object nor a boolean"),
    ({"items": [INTEGER]}, "prefixItems"),
    ({"minItems": -1}, "minItems"),
    ({"minItems": 1.5}, "minItems"),
    ({"minItems": 10**9}, "at most 100000"),
    ({"maxLength": 10**6}, "at most 100000"),
    ({"minimum": "1"}, "minimum"),
    ({"multipleOf": 0}, "multipleOf"),
    ({"multipleOf": 0.1}, "integer"),
    ({"pattern": "("}, "regular expression"),
    ({"pattern": "foo**"}, "regular expression"),
    ({"pattern": "x(?=y)"}, "look-around"),
    ({"pattern": r"(a)\1"}, "back-references"),
    ({"pattern": r"\bx"}, "anchors"),
    ({"pattern": "([a-z]{1,1000}){1,1000}"}, "10000"),
    ({"anyOf": []}, "anyOf"),
    ({"allOf": {}}, "allOf"),
    ({"$ref": "http://example.com/s"}, "leads out"),
    ({"$ref": "other.json#/a"}, "leads out"),
    ({"$ref": "#/$defs/none"}, "leads nowhere"),
    ({"$ref": "#name"}, "anchor"),
    ({"$ref": "http://["}, "leads out"),
    ({"$id": "http://x.example/", "$ref": "//["}, "not an address"),
    ({"type": "array", "items": {"$ref": "#/x/y"}, "x": {"y": {"$ref": "other"}}}, "cannot be followed"),
    ({"$ref": "#"}, "back to itself"),
    (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [INTEGER, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        "back to itself",
    ),
    (
        {
            "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}},
            "$ref": "#/$defs/n",
        },
        "satisf",
    ),
    ({"oneOf": [INTEGER, {"type": "number"}]}, "oneOf"),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "oneOf"),
    ({"type": "string", "const": 5}, "nsatisfiable"),
    ({"type": "array", "minItems": 3, "maxItems": 2}, "compiled"),
    ({"type": "object", "propertyNames": {"pattern": "a", "maxLength": 2}}, "pattern and a length"),
    ({"type": "object", "propertyNames": {"format": "uri"}}, "propertyNames"),
    ({"type": "object", "propertyNames": {"pattern": "^a"}, "patternProperties": {"b": {}}}, "patternProperties"),
    ({"type": "object", "properties": {f"p{i}": {} for i in range(20)}, "maxProperties": 3}, "optional properties"),
    ({"type": "object", "minProperties": 2}, "not listed"),
    (
        {"type": "object", "minProperties": 3, "properties": {"a": {}}, "required": ["a"], "maxProperties": 5},
        "Unsatisfiable",
    ),
    (
        {
            "type": "object",
            "minProperties": 3,
            "properties": {"a": {}},
            "required": ["a"],
            "additionalProperties": True,
        },
        "asks for 2 properties",
    ),
    (
        {"type": "object", "minProperties": 2, "patternProperties": {"^a": {}}, "additionalProperties": False},
        "not listed",
    ),
    *(
        ({keyword: value}, keyword)
        for keyword, value in {
            "not": {},
            "if": {},
            "then": {},
            "else": {},
            "uniqueItems": True,
            "contains": {},
            "minContains": 1,
            "maxContains": 1,
            "dependentSchemas": {},
            "dependentRequired": {},
            "dependencies": {},
            "unevaluatedItems": False,
            "unevaluatedProperties": False,
            "additionalItems": False,
            "$dynamicRef": "#a",
        }.items()
    ),
    ({"type": "object", "properties": {"a": {"items": {"not": {}}}}}, "not"),
]
