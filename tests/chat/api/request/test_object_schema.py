"""Schemas of function arguments that no object can satisfy are refused."""

import pytest
from rest_framework.exceptions import ValidationError

from chat.api.request.tools import object_check

STRING = {"$defs": {"a": {"type": "string"}, "b": {"type": "object"}, "c": {"$ref": "#/$defs/c"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": ["null", "object"]},
        {"enum": [1, {"a": 1}]},
        {"const": {}},
        {"anyOf": [{"type": "string"}, {"properties": {}}]},
        {"oneOf": [False, True]},
        {"allOf": [{}, {"type": "object"}]},
        {"$ref": "#/$defs/b", **STRING},
        {"$ref": "#/$defs/c", **STRING},
        {"$ref": "#", "type": "object"},
        {"$ref": "#/anyOf/1", "anyOf": [{"type": "string"}, {}]},
        {"properties": {"a": {"type": "string", "enum": [1]}}, "not": {"type": "array"}},
    ],
    ids=str,
)
def test_schemas_that_admit_objects_pass(schema):
    object_check(schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "string"}, "type"),
        ({"type": []}, "type"),
        ({"const": 1}, "const"),
        ({"enum": ["a", []]}, "enum"),
        ({"anyOf": [{"type": "string"}, False]}, "anyOf"),
        ({"oneOf": [{"const": None}]}, "oneOf"),
        ({"allOf": [{}, {"anyOf": [{"enum": [1]}]}]}, "allOf"),
        ({"$ref": "#/$defs/a", **STRING}, "$ref"),
        ({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], **STRING}, "anyOf"),
        ({"$ref": "#/$defs/z", **STRING}, "$ref"),
    ],
    ids=str,
)
def test_schemas_that_admit_no_object_are_refused_at_their_keyword(schema, place):
    with pytest.raises(ValidationError) as caught:
        object_check(schema)
    assert list(caught.value.detail) == [place]


def test_many_branches_and_long_chains_are_checked_fast():
    """Each schema is checked once, and no deeper than Python's recursion limit."""
    chain = {f"s{index}": {"anyOf": [{"$ref": f"#/$defs/s{index + 1}"}] * 2} for index in range(5_000)}
    object_check({"$ref": "#/$defs/s0", "$defs": {**chain, "s5000": {"type": "string"}}})
