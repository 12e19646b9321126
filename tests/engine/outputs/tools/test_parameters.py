"""Plain text becomes JSON of the declared type, or a string if it does not fit."""

import json

import pytest

from engine.api.request import Tool
from engine.outputs.tools.parameters import MAX_HOPS, ParameterTypes, text_to_json
from tests.engine.outputs.tools.joined import WEATHER, parse_with


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        ("string", "5", "5"),
        ("string", "null", "null"),
        ("integer", " 5 ", 5),
        ("integer", "5.5", "5.5"),
        ("integer", "007", "007"),
        ("integer", "null", None),
        ("number", "-1.5e3", -1500.0),
        ("number", "NaN", "NaN"),
        ("number", "1e999", "1e999"),
        ("array", "[1e999]", "[1e999]"),
        ("boolean", "True", True),
        ("boolean", "false", False),
        ("boolean", "yes", "yes"),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("object", "{'a': None}", {"a": None}),
        ("object", "{broken", "{broken"),
        ("array", "[1, 2]", [1, 2]),
        ("array", "[NaN]", "[NaN]"),
        ("integer null", "none", None),
        ("integer string", "x", "x"),
        ("integer string", "5", 5),
    ],
)
def test_text_is_read_as_a_declared_type(types, text, value):
    assert json.loads(text_to_json(text, frozenset(types.split()))) == value


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": ["integer", "null"]}, "integer null"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "number null"),
        ({"enum": [1, "a", None]}, "integer string null"),
        ({"const": True}, "boolean"),
        ({"$ref": "#/$defs/a~1b"}, "array"),
        ({"$ref": "#/$defs/loop"}, "string"),
        ({"$ref": "http://elsewhere/"}, "string"),
        ({"properties": {}}, "object"),
        ({"type": "odd"}, "string"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_types_are_found_in_the_schema(schema, types):
    root = {"properties": {"x": schema}, "$defs": {"a/b": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}}}
    assert ParameterTypes(Tool("f", root)).types_of("x") == frozenset(types.split())


def test_unlisted_parameters_get_their_schema_types():
    assert ParameterTypes(Tool("f", {"additionalProperties": {"type": "integer"}})).types_of("x") == {"integer"}
    assert ParameterTypes(Tool("f")).types_of("x") == {"string"}


def test_wide_and_deep_alternatives_are_followed_only_so_far():
    schema = {"type": "integer"}
    for _ in range(3 * MAX_HOPS):
        schema = {"anyOf": [schema] * 3}
    assert ParameterTypes(Tool("f", {"properties": {"x": schema}})).types_of("x") == {"string"}


def tagged(*parameters):
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return (
        parse_with("qwen3_coder", f"<tool_call>\n<function=get_weather>\n{body}</function>\n</tool_call>")
        .calls[0]
        .arguments
    )


def test_tagged_values_have_the_types_of_their_parameters():
    values = {
        "city": "1",
        "days": 2,
        "ratio": 0.5,
        "is_metric": True,
        "tags": ["a"],
        "options": {"b": 1},
        "limit": None,
        "place": {},
    }
    texts = [
        ("city", "1"),
        ("days", "2"),
        ("ratio", "0.5"),
        ("is_metric", "True"),
        ("tags", "['a']"),
        ("options", '{"b": 1}'),
    ]
    assert json.loads(tagged(*texts, ("limit", "null"), ("place", "{}"))) == values
    assert set(values) == set(WEATHER.parameters["properties"])


def test_tagged_strings_keep_all_but_the_line_breaks_of_the_format():
    assert json.loads(tagged(("city", '\n  def f():\n\t"x" < 1\n'))) == {"city": '\n  def f():\n\t"x" < 1\n'}


def test_a_tagged_value_may_lack_its_end():
    result = parse_with("qwen3_coder", "<function=get_weather><parameter=city>Bern<parameter=days>3</function>")
    assert json.loads(result.calls[0].arguments) == {"city": "Bern", "days": 3}
    result = parse_with("qwen3_coder", "<tool_call><function=get_weather><parameter=city>Bern</tool_call>")
    assert json.loads(result.calls[0].arguments) == {"city": "Bern"}


def test_a_tagged_call_may_hold_json():
    result = parse_with("qwen3_coder", '<tool_call><function=get_weather>\n{"city": "Bern"}\n</function></tool_call>')
    assert result.calls[0].arguments == '{"city": "Bern"}'


def test_a_tagged_string_that_is_cut_is_kept():
    result = parse_with("qwen3_coder", "<function=get_weather><parameter=city>Ber")
    assert result.calls[0].arguments == '{"city": "Ber'
    assert not result.calls[0].is_complete


def test_gemma_strings_have_the_types_of_their_parameters():
    call = (
        "<start_function_call>call:get_weather{city:<escape>7<escape>days:<escape>3<escape>,tags:[<escape>a<escape>,1]}"
    )
    assert json.loads(parse_with("functiongemma", call).calls[0].arguments) == {
        "city": "7",
        "days": 3,
        "tags": ["a", 1],
    }
    nested = '<|tool_call>call:get_weather{options:{a:{},b:[true,<|"|>x}<|"|>],c:null}}<tool_call|>'
    assert json.loads(parse_with("gemma4", *nested).calls[0].arguments) == {
        "options": {"a": {}, "b": [True, "x}"], "c": None}
    }


def test_deepseek_attribute_decides_whether_a_value_is_a_string():
    begin, end = (
        '<｜DSML｜function_calls><｜DSML｜invoke name="get_weather">',
        "</｜DSML｜invoke></｜DSML｜function_calls>",
    )
    days = '<｜DSML｜parameter name="days" string="true">3</｜DSML｜parameter>'
    odd = '<｜DSML｜parameter name="odd" string="false">[1]</｜DSML｜parameter>'
    assert json.loads(parse_with("deepseek_v32", begin + days + odd + end).calls[0].arguments) == {
        "days": "3",
        "odd": [1],
    }
