"""Objects that list properties admit no others by default, as a small model would add some without end."""

import json

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.api import RequestError
from tests.engine.structured.walking import admits, schema, spellings, template_of, walks
from tests.examples import examples

A, B, C = ({"properties": {name: {"type": "integer"}}} for name in "abc")
BASE = {"$defs": {"base": {**A, "required": ["a"]}, "either": {"anyOf": [B, C]}}}

CLOSED = [
    (A, ['{"a":1}', "{}", "[]"], ['{"z":1}', '{"a":1,"z":1}']),
    ({"type": "object", "properties": {}}, ["{}"], ['{"z":1}']),
    ({**A, "required": ["z"]}, ['{"a":1,"z":[]}'], ['{"z":1,"y":1}']),
    ({**A, "patternProperties": {"^x": {"type": "null"}}}, ['{"a":1,"x1":null}'], ['{"y":null}']),
    ({"properties": {"o": A, "l": {"items": B}}},
     ['{"o":{"a":1},"l":[{"b":1}]}'], ['{"o":{"z":1}}', '{"l":[{"z":1}]}']),
    ({"allOf": [A, B]}, ['{"a":1,"b":2}', "{}"], ['{"a":1,"z":2}']),
    ({**C, "allOf": [{"allOf": [A]}, B]}, ['{"a":1,"b":2,"c":3}'], ['{"z":2}']),
    ({**BASE, "$ref": "#/$defs/base"}, ['{"a":1}'], ["{}", '{"a":1,"z":2}']),
    ({**BASE, **B, "$ref": "#/$defs/base"}, ['{"a":1,"b":2}', '{"a":1}'], ['{"b":1}', '{"a":1,"z":2}']),
    ({**BASE, "properties": {"x": {"$ref": "#/$defs/base"}, "y": {"allOf": [{"$ref": "#/$defs/base"}, B]}}},
     ['{"x":{"a":1},"y":{"a":1,"b":2}}'], ['{"x":{"a":1,"b":2}}', '{"y":{"a":1,"z":2}}']),
    ({"anyOf": [A, B]}, ['{"a":1}', '{"b":1}'], ['{"z":1}', '{"a":1,"b":1}']),
    ({**C, "anyOf": [A, B]}, ['{"c":1,"a":1}', '{"b":1,"c":1}'], ['{"z":1}']),
    ({**C, "oneOf": [{**A, "type": "object", "required": ["a"]}, {**B, "type": "object", "required": ["b"]}]},
     ['{"c":1,"a":1}', '{"c":1,"b":1}'], ['{"c":1}', '{"a":1,"z":1}']),
    ({**A, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
     ['{"a":1}', '{"b":[]}', '{"a":1,"b":2}'], ["{}", '{"b":1,"z":1}']),
    ({**C, "anyOf": [A, B], "allOf": [{"anyOf": [A, {"properties": {"d": {}}}]}]},
     ['{"c":1,"a":1}', '{"a":1,"d":1}'], ['{"z":1}']),
    ({**BASE, **A, "$ref": "#/$defs/either"}, ['{"a":1,"b":1}', '{"a":1,"c":1}'], ['{"z":1}']),
    ({**BASE, "allOf": [{"$ref": "#/$defs/either"}], "description": "one"},
     ['{"b":1}', '{"c":1}'], ['{"b":1,"c":1}', '{"z":1}']),
    ({"required": ["kind"], "anyOf": [A, B]}, ['{"kind":"x","a":1}'], ['{"kind":"x","z":1}']),
]  # fmt: skip
"""Schemas, texts that they admit, and texts that they do not."""

OPEN = [
    {},
    {"type": "object"},
    {"required": ["z"]},
    {"patternProperties": {"^z": {}}},
    {**A, "additionalProperties": True},
    {**A, "additionalProperties": {"type": "integer"}},
    {"allOf": [A, {**B, "additionalProperties": True}]},
    {**BASE, "$ref": "#/$defs/base", "additionalProperties": True},
    {**A, "anyOf": [{**B, "additionalProperties": True}, C]},
    {**A, "additionalProperties": True, "anyOf": [B, C]},
    {"anyOf": [A, {"type": "object"}]},
]


@pytest.mark.parametrize(("value", "right", "wrong"), CLOSED, ids=[json.dumps(value) for value, _, _ in CLOSED])
def test_only_listed_properties_are_admitted(value, right, wrong):
    template = template_of(schema(value))
    assert [text for text in right if not in_some_order(template, text)] == []
    assert [text for text in wrong if in_some_order(template, text)] == []


@pytest.mark.parametrize("value", OPEN, ids=json.dumps)
def test_a_schema_that_mentions_additional_properties_stays_open(value):
    assert in_some_order(template_of(schema(value)), '{"a":1,"z":1}')


def in_some_order(template, text):
    """Return whether a text is admitted in any order of its properties."""
    return any(admits(template, spelling) for spelling in spellings(json.loads(text)))


NAMES = st.sampled_from("abcd")


def objects(parts):
    """Return schemas of objects, put together of others."""
    lists = st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, st.sampled_from([{"type": "integer"}, {"type": "boolean"}]), max_size=2)},
        optional={"required": st.lists(NAMES, max_size=2, unique=True)},
    )
    return st.one_of(
        lists,
        st.builds(lambda own, branches: {**own, "anyOf": branches}, lists, st.lists(parts, min_size=1, max_size=2)),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(parts, min_size=1, max_size=2)),
        st.builds(lambda own, others: {**own, "allOf": others}, lists, st.lists(parts, min_size=1, max_size=2)),
        st.builds(lambda own, name: {**own, "$ref": f"#/$defs/{name}"}, lists, st.sampled_from(["one", "two"])),
    )


@examples(60)
@given(st.recursive(st.just(A), objects, max_leaves=4))
def test_a_closed_schema_admits_only_valid_texts_with_listed_names(value):
    value = {**value, "type": "object", "$defs": {"one": {**B, "required": ["b"]}, "two": {"anyOf": [B, C]}}}
    try:
        template = template_of(schema(value))
    except RequestError:
        assume(False)
    for text in walks(template, number=3, length=20):
        jsonschema.Draft202012Validator(value).validate(json.loads(text))
        assert set(json.loads(text)) <= set("abcd")
