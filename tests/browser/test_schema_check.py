"""The page's marks of values that break a schema agree with jsonschema, and a broken schema breaks nothing."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHECK = """async ([schemas, values]) => {
    const { checkValue } = await import('/static/chat/playground/app/core/schema_check.js');
    return schemas.map((schema) => values.map((value) => checkValue(value, schema).failures.length === 0));
}"""
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2.5, 7, 21, "", "a", "ab", "abcdef", "2026-03-01", "😀😀"),
    *([], [1], [1, 2, 3], [1, 1], ["a", 2], [[1], {"a": 1}], [{"a": 1}, {"a": 1}]),
    *({}, {"a": 1}, {"a": "x"}, {"b": 2}, {"a": 1, "b": 2}, {"a": {"a": {"a": 1}}}, {"x-y": 1}, {"a": None}),
]
SCHEMAS: list[Any] = [
    *(True, False, {}),
    *({"type": name} for name in ("null", "boolean", "integer", "number", "string", "array", "object")),
    *({"type": ["string", "null"]}, {"enum": [1, "a", None, [1]]}, {"const": {"a": 1}}),
    *({"minimum": 1}, {"maximum": 1}, {"exclusiveMinimum": 1}, {"exclusiveMaximum": 7}, {"multipleOf": 7}),
    *({"minLength": 2}, {"maxLength": 2}, {"pattern": "^a"}, {"minItems": 1}, {"maxItems": 1}, {"uniqueItems": True}),
    *({"items": {"type": "integer"}}, {"prefixItems": [{"type": "string"}, {"type": "integer"}]}),
    {"prefixItems": [{"const": 1}], "items": False},
    *({"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}, {"minProperties": 1}, {"maxProperties": 1}),
    {"properties": {"a": True}, "additionalProperties": False},
    {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
    {"propertyNames": {"maxLength": 1}},
    *({"allOf": [{"minimum": 1}, {"maximum": 7}]}, {"not": {"type": "string"}}),
    *({"anyOf": [{"type": "string"}, {"minimum": 7}]}, {"oneOf": [{"type": "number"}, {"minimum": 7}]}),
    {"$defs": {"node": {"properties": {"a": {"$ref": "#/$defs/node"}}, "type": "object"}}, "$ref": "#/$defs/node"},
]
BROKEN: list[Any] = [
    *({"enum": "text"}, {"required": "a"}, {"required": 7}, {"properties": ["a"]}, {"properties": None}),
    *({"pattern": "("}, {"patternProperties": {"(": {}}}, {"allOf": {}}, {"anyOf": None}, {"items": 7}),
    *(
        {"$ref": 7},
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"prefixItems": {"a": 1}},
        {"type": 7},
        {"oneOf": [None, 7]},
    ),
]


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return scripted.sign_in()


def test_marks_are_those_of_the_reference(page: Any) -> None:
    found = page.evaluate(CHECK, [SCHEMAS, VALUES])
    wanted = [[Draft202012Validator(schema).is_valid(value) for value in VALUES] for schema in SCHEMAS]
    wrong = [
        (schema, value)
        for schema, marks, right in zip(SCHEMAS, found, wanted, strict=True)
        for value, mark, is_valid in zip(VALUES, marks, right, strict=True)
        if mark is not is_valid
    ]
    assert wrong == []


def test_what_is_no_rule_is_not_checked(page: Any) -> None:
    """A schema that is being typed, such as an `enum` that is still text, ended the page's marks with an error."""
    found = page.evaluate(CHECK, [BROKEN, [{"a": {"a": 1}}, [1, 2], "text"]])
    assert len(found) == len(BROKEN)
