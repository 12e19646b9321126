"""Texts that a schema admits are valid by an independent validator; unenforceable schemas are refused."""

from __future__ import annotations

import ipaddress
import json
import re
import uuid
from datetime import datetime, time

import jsonschema
import pytest

from engine.api import RequestError
from engine.structured.schema.check import check_schema
from tests.engine.structured.schemas import ENFORCED, FORMATS, REFUSED
from tests.engine.structured.walking import LIMITS, admits, schema, template_of, walks

FORMAT_CHECKS = {
    "date-time": lambda text: (
        datetime.fromisoformat(_without_leap_second(text)).tzinfo is not None and "T" in text.upper()
    ),
    "date": lambda text: re.fullmatch(r"\d{4}-\d\d-\d\d", text) and datetime.fromisoformat(text),
    "time": lambda text: time.fromisoformat(_without_leap_second(text)).tzinfo is not None,
    "duration": lambda text: re.fullmatch(r"P(\d+W|(?=.)(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)", text),
    "email": lambda text: re.fullmatch(r"[^\s@]+@[^\s@]+", text),
    "hostname": lambda text: re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*", text),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uri": lambda text: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]*", text),
    "uuid": lambda text: uuid.UUID(text) and len(text) == 36,
}
CHECKER = jsonschema.FormatChecker(formats=())
for name, check in FORMAT_CHECKS.items():
    CHECKER.checks(name, raises=ValueError)(lambda value, check=check: not isinstance(value, str) or bool(check(value)))


def _without_leap_second(text):
    return re.sub(r":60", ":59", text).upper().replace("Z", "+00:00")


def check_valid(value, text):
    """Check that the text is valid under the schema and has no white space outside strings."""
    instance = json.loads(text)
    jsonschema.Draft202012Validator(value, format_checker=CHECKER).validate(instance)
    assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text)), text


@pytest.mark.parametrize("value", ENFORCED, ids=lambda value: json.dumps(value)[:60])
def test_every_admitted_text_is_valid_and_compact(value):
    template = template_of(schema(value))
    for text in walks(template):
        check_valid(value, text)


@pytest.mark.parametrize(("value", "reason"), REFUSED, ids=lambda value: json.dumps(value)[:60])
def test_an_unenforceable_schema_is_refused_with_the_reason(value, reason):
    with pytest.raises(RequestError) as caught:
        template_of(schema(value, param="structured_outputs.json"))
    assert reason in caught.value.message
    assert caught.value.param == "structured_outputs.json"


def test_the_list_of_schemas_covers_all_formats():
    assert len(ENFORCED) > 200
    assert set(FORMATS) == set(FORMAT_CHECKS)


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [
        ({"type": "integer"}, ["0", "-12"], ["1.5", "01", " 1", "1 "]),
        ({"type": "number"}, ["0.5", "-1e3", "12"], ["01", "+1", ".5"]),
        ({"type": "string"}, ['"é😀\\n"', '""'], ['"\n"', "'a'"]),
        ({"type": "string", "maxLength": 2}, ['"éé"', '"\\n\\n"'], ['"abc"']),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}},
            ['{"a":1,"b":2}', '{"b":2,"c":3}'],
            ['{"b":1,"a":2}', '{"a":1,"a":2}'],
        ),
        ({"type": "object", "minProperties": 1, "properties": {"a": {}, "b": {}}}, ['{"b":1}', '{"z":1}'], ["{}"]),
        ({"anyOf": [{"const": 1}, {"const": "x"}]}, ["1", '"x"'], ["2", '"1"']),
        ({"type": ["array"], "prefixItems": [{"type": "null"}]}, ["[]", "[null,5]"], ["[5]", "[null, 5]"]),
        (
            {"format": "date", "type": "string"},
            ['"2024-02-29"', '"2000-02-29"', '"1999-12-31"'],
            ['"2023-02-29"', '"1900-02-29"', '"2023-04-31"'],
        ),
        (
            {"format": "time", "type": "string"},
            ['"23:59:59Z"', '"00:00:00.5+01:30"'],
            ['"23:59:60Z"', '"12:00:00"', '"24:00:00Z"'],
        ),
        (
            {"format": "date-time", "type": "string"},
            ['"2024-02-29T12:00:00Z"'],
            ['"2024-02-29"', '"2024-02-29 12:00:00Z"'],
        ),
        (
            {"format": "hostname", "type": "string"},
            ['"a.b-c.example"', f'"{"a" * 63}"'],
            [f'"{"a" * 64}"', '"-a"', '"a--b"', '"a."'],
        ),
        ({"multipleOf": 5, "type": "number"}, ["10", "0", "-15"], ["12"]),
        (
            {"type": "object", "minProperties": 2, "properties": {"a": {}, "b": {}}},
            ['{"a":1,"b":2}', '{"b":1,"z":2,"z":3}'],
            ['{"z":1,"z":2}', '{"a":1}'],
        ),
        (
            {"type": "object", "properties": {"a": {"const": 1}}},
            ['{"a":1,"\\n":2}'],
            ['{"\\u0061":2}', '{"a":1,"\\u0061":2}'],
        ),
        ({"type": "object", "patternProperties": {"^a": {"const": 1}}}, ['{"ab":1,"b":2}'], ['{"\\u0061":2}']),
        ({"const": "\u0001\x7f"}, ['"\\u0001\\u007f"'], []),
    ],
)
def test_example_texts_are_admitted_or_rejected(value, right, wrong):
    template = template_of(schema(value, closes_objects=False))
    assert [text for text in right if not admits(template, text)] == []
    assert [text for text in wrong if admits(template, text)] == []


def test_white_space_is_limited_to_the_requested_pattern():
    value = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]}
    template = template_of(schema(value, whitespace="[ \\t\\n\\r]{0,3}"))
    assert admits(template, '{ "a" :\n[1,\t2 ]   }')
    assert admits(template, '{"a":[1,2]}')
    assert not admits(template, '{    "a":[1]}')


GAPS = [" ", r"\n  ", r"[ \n]", r"[ ]{1,2}|\t", " +"]
SPACED = [
    {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}},
        "required": ["a"],
    },
    {"const": {"a b": [1, {"b": None}], "": []}},
    {"enum": ['x" y', [1, 2], {}]},
    {"type": "integer"},
    {"type": "object", "patternProperties": {"^a+$": {"type": "string"}}, "additionalProperties": False},
    {},
]
TOKEN = r'("(?:[^"\\]|\\.)*"|[][{}:,]|[-+.\w]+)'


@pytest.mark.parametrize("whitespace", GAPS)
@pytest.mark.parametrize("value", SPACED, ids=json.dumps)
def test_a_non_empty_white_space_pattern_is_required_between_all_tokens(value, whitespace):
    found = walks(template_of(schema(value, whitespace=whitespace)), length=30)
    assert found
    for text in found:
        jsonschema.Draft202012Validator(value).validate(json.loads(text))
        before, *gaps, after = re.split(TOKEN, text)[::2]
        assert (before, after) == ("", "")
        assert all(re.fullmatch(whitespace, gap) for gap in gaps), text


def test_white_space_is_required_again_after_a_rollback():
    matcher = template_of(schema({"type": "array", "minItems": 1}, whitespace=" ")).start()
    assert all(matcher.accept(byte) for byte in b"[ 1 ]")
    assert (matcher.can_end(), matcher.is_complete()) == (True, True)
    matcher.rollback(2)
    assert not matcher.accept(ord("]"))
    assert not matcher.can_end()
    assert all(matcher.accept(byte) for byte in b" ]")


@pytest.mark.parametrize("whitespace", ["[ a]", "x?", ".*", r"\s", "[^a]", "("])
def test_white_space_is_space_tab_cr_and_lf_only(whitespace):
    with pytest.raises(RequestError):
        template_of(schema({}, whitespace=whitespace))


def test_a_deep_schema_is_enforced_to_its_bottom():
    value = {"type": "boolean"}
    for _ in range(60):
        value = {"type": "object", "properties": {"a": value}, "required": ["a"], "additionalProperties": False}
    template = template_of(schema(value))
    assert admits(template, '{"a":' * 60 + "true" + "}" * 60)
    assert not admits(template, '{"a":' * 60 + "1" + "}" * 60)
    assert not admits(template, '{"a":' * 59 + "true" + "}" * 59)


def test_limits_of_numeric_bounds_apply_only_to_enforced_schemas():
    """In auto mode a tool is only shown to the model; Claude Code has one with a `maxLength` of 524,288."""
    value = {"type": "object", "properties": {"script": {"type": "string", "maxLength": 524_288}}}
    check_schema(value, LIMITS, "tools.0.function.parameters", is_enforced=False)
    with pytest.raises(RequestError, match="at most 100000, got 524288"):
        check_schema(value, LIMITS, "tools.0.function.parameters", is_enforced=True)
    for wrong in (-1, 1.5, "x", None, True):
        with pytest.raises(RequestError, match="maxLength' must be an integer of at least 0"):
            check_schema({"maxLength": wrong}, LIMITS, "tools.0.function.parameters", is_enforced=False)
