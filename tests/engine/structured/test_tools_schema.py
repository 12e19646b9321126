"""Calls under their schemas: arrays of calls, bare arguments, parser formats, and content beside them."""

from __future__ import annotations

import dataclasses
import json
from typing import NamedTuple

import pytest

from engine.api import GenerationRequest, RequestError
from engine.api.constraint import Constraint, ConstraintKind
from engine.api.request import Tool, ToolChoice, ToolMode
from engine.structured.tags.tools_schema import answer_constraint, blamed, tool_schemas
from tests.engine.structured.walking import admits, compiled, template_of, walks

DEFINITIONS = {
    "$defs": {"x": {"type": "integer"}},
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/x"}},
    "required": ["v"],
}
OTHER_DEFINITIONS = {
    "$defs": {"x": {"type": "boolean"}},
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/x"}},
    "required": ["v"],
}
WEATHER = Tool("weather", DEFINITIONS)
LAMP = Tool("lamp", OTHER_DEFINITIONS)
PING = Tool("ping")
NOTE = Tool("note", {})


class Format(NamedTuple):
    trigger: str = "<call>"
    begin: str = '<call>{"name": "'
    middle: str = '", "arguments": '
    end: str = "}</call>"
    number_end: str = ""
    style: str = "json"


class Parser(NamedTuple):
    start_marker: str | None = "<call>"
    call_format: Format | None = Format()


def request(mode, *tools, names=(), is_parallel=True, constraint=None):
    choice = ToolChoice(mode, names, is_parallel)
    return GenerationRequest("run", "m", (), 0.0, tools=tools, tool_choice=choice, constraint=constraint)


def strict(tool):
    return dataclasses.replace(tool, is_strict=True)


def admitted(asked, right, wrong, parser=None):
    template = template_of(answer_constraint(asked, parser))
    assert [text for text in right if not admits(template, text)] == []
    assert [text for text in wrong if admits(template, text)] == []
    assert all(admits(template, text) for text in walks(template, number=3, length=30))


def test_required_is_an_array_of_calls_each_under_its_own_definitions():
    admitted(
        request(ToolMode.REQUIRED, WEATHER, LAMP, PING),
        [
            '[{"name":"weather","parameters":{"v":1}}]',
            '[{"name":"lamp","parameters":{"v":true}},{"name":"ping","parameters":{}}]',
        ],
        [
            "[]",
            '[{"name":"weather","parameters":{"v":true}}]',
            '[{"name":"lamp","parameters":{"v":1}}]',
            '[{"name":"ping","parameters":{"x":1}}]',
            '[{"name":"other","parameters":{}}]',
        ],
    )


def test_required_can_be_limited_to_one_call_and_some_functions():
    admitted(
        request(ToolMode.REQUIRED, WEATHER, PING, NOTE, names=("ping", "note"), is_parallel=False),
        ['[{"name":"ping","parameters":{}}]', '[{"name":"note","parameters":{"a":[1]}}]'],
        [
            '[{"name":"ping","parameters":{}},{"name":"ping","parameters":{}}]',
            '[{"name":"weather","parameters":{"v":1}}]',
        ],
    )


@pytest.mark.parametrize(
    ("tool", "right", "wrong"),
    [
        (WEATHER, ['{"v":1}'], ["{}", "1", '{"v":"x"}']),
        (PING, ["{}"], ['{"a":1}', "null"]),
        (NOTE, ["{}", '{"a":1}'], ["[]", "1"]),
        (Tool("t", {"properties": {"a": {"type": "null"}}}), ["{}", '{"a":null}'], ['"x"', '{"a":1}']),
        (Tool("t", True), ["{}"], ["1"]),
    ],
)
def test_the_answer_to_a_named_tool_is_its_arguments(tool, right, wrong):
    admitted(request(ToolMode.NAMED, LAMP, tool, names=(tool.name,)), right, wrong)


def test_a_forced_tool_goes_before_a_response_format():
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, '{"type":"integer"}', "response_format")
    admitted(request(ToolMode.NAMED, WEATHER, names=("weather",), constraint=constraint), ['{"v":1}'], ["5"])


def test_strict_calls_follow_their_schemas_once_begun():
    admitted(
        request(ToolMode.AUTO, strict(WEATHER), NOTE),
        [
            "hello",
            'so <call>{"name": "weather", "arguments": {"v":1}}</call> and <call>{"name": "note", "arguments": '
            "whatever}</call>",
        ],
        ['<call>{"name": "weather", "arguments": {"v":true}}</call>', '<call>{"name": "other', "<call>x"],
        Parser(),
    )


def test_a_call_format_may_contain_a_number():
    numbered = Format("<c>", "<c>functions.", ":", "</c>", number_end="<a>")
    admitted(
        request(ToolMode.AUTO, strict(WEATHER)),
        ['<c>functions.weather:0<a>{"v":1}</c>', "hi"],
        ['<c>functions.weather:<a>{"v":1}</c>', "<c>functions.weather:0<a>{}</c>"],
        Parser("<c>", numbered),
    )


def test_arguments_may_be_written_as_tags():
    tagged = Format("<f=", "<f=", ">", "</f>", style="qwen_xml")
    tool = strict(
        Tool(
            "t",
            {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]},
        )
    )
    admitted(
        request(ToolMode.AUTO, tool),
        [
            "<f=t><parameter=s>any </text></parameter><parameter=n>5</parameter></f>",
            "<f=t><parameter=n>5</parameter></f>bye",
        ],
        ["<f=t></f>", "<f=t><parameter=n>x</parameter></f>"],
        Parser("<tool>", tagged),
    )


LEVEL = {"type": "string", "enum": ["low", "high"]}
OPTIONAL_TEXT = {"anyOf": [{"type": "string"}, {"type": "null"}]}
TAGGED = Parser("<tool>", Format("<f=", "<f=", ">", "</f>", style="qwen_xml"))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (LEVEL, ["low", "high"], ['"low"', "other", ""]),
        ({"$ref": "#/$defs/level"}, ["low"], ['"low"', "other"]),
        ({"anyOf": [{"$ref": "#/$defs/level"}, {"type": "null"}]}, ["high", "null"], ["none", "7"]),
        (OPTIONAL_TEXT, ["any <b>", "null", ""], []),
        ({"type": ["string", "null"]}, ["x"], []),
        ({}, ["x"], []),
        ({"const": "on"}, ["on"], ["off"]),
        ({"enum": [1, 2]}, ["1"], ["3", '"1"']),
        ({"type": "array", "items": LEVEL}, ['["low"]'], ["[low]", "low"]),
    ],
)
def test_a_string_in_a_tag_is_written_as_it_is(schema, right, wrong):
    """The parser takes the text of a string parameter unchanged, including quotes."""
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"], "$defs": {"level": LEVEL}}
    template = template_of(answer_constraint(request(ToolMode.AUTO, strict(Tool("t", parameters))), TAGGED))
    assert [text for text in right if not admits(template, f"<f=t><parameter=p>{text}</parameter></f>")] == []
    assert [text for text in wrong if admits(template, f"<f=t><parameter=p>{text}</parameter></f>")] == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 3},
        {"type": "string", "format": "date"},
        {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]},
    ],
)
def test_an_unenforceable_string_schema_in_a_tag_is_refused(schema):
    parameters = {"type": "object", "properties": {"p": schema}, "required": ["p"]}
    with pytest.raises(RequestError, match="parameter 'p' is written as a tag"):
        compiled(answer_constraint(request(ToolMode.AUTO, strict(Tool("t", parameters))), TAGGED))


@pytest.mark.parametrize("parser", [None, Parser(None, None)])
def test_without_a_marker_there_is_content_only(parser):
    constraint = Constraint(ConstraintKind.REGEX, "[0-9]+")
    assert answer_constraint(request(ToolMode.AUTO, strict(WEATHER), constraint=constraint), parser) is constraint
    assert answer_constraint(request(ToolMode.AUTO, strict(WEATHER)), parser) is None


def test_calls_without_strict_are_not_constrained():
    assert answer_constraint(request(ToolMode.AUTO, WEATHER), Parser()) is None
    assert answer_constraint(request(ToolMode.NONE, WEATHER), Parser()) is None
    assert answer_constraint(request(ToolMode.AUTO, strict(WEATHER)), Parser("<call>", None)) is None


@pytest.mark.parametrize(
    ("kind", "source", "content", "other"),
    [
        (ConstraintKind.JSON_SCHEMA, '{"type":"integer"}', "5", "x"),
        (ConstraintKind.JSON_OBJECT, "", '{"a":1}', "5"),
        (ConstraintKind.REGEX, "[a-z]+", "abc", "5"),
        (ConstraintKind.CHOICE, '["yes","no"]', "yes", "maybe"),
        (ConstraintKind.GRAMMAR, 'root ::= "a" | "b"', "b", "c"),
        (
            ConstraintKind.STRUCTURAL_TAG,
            '{"type":"structural_tag","format":{"type":"const_string","value":"k"}}',
            "k",
            "l",
        ),
    ],
)
def test_auto_with_a_constraint_admits_constrained_content_or_calls(kind, source, content, other):
    constraint = Constraint(kind, source, "structured_outputs.x")
    loose = request(ToolMode.AUTO, WEATHER, constraint=constraint)
    admitted(loose, [content, "<call>whatever"], [other, "", "<cal"], Parser())
    held = request(ToolMode.AUTO, strict(WEATHER), constraint=constraint)
    call = '<call>{"name": "weather", "arguments": {"v":1}}</call>'
    admitted(held, [content, call, f"{call}\n{call}"], [other, "<call>whatever", f"{content}{call}"], Parser())


def test_all_tool_schemas_are_checked_and_named_by_field():
    assert tool_schemas((PING, WEATHER)) == [(json.dumps(DEFINITIONS), "tools.1.function.parameters")]


def test_an_unenforceable_tool_is_named():
    bad = Tool("bad", {"type": "object", "not": {}})
    asked = request(ToolMode.REQUIRED, PING, WEATHER, bad)
    constraint = answer_constraint(asked, None)
    assert constraint.param == "tools"
    with pytest.raises(RequestError) as caught:
        compiled(constraint)
    error = blamed(caught.value, asked, compiled)
    assert error.param == "tools.2.function.parameters"
    assert "'not'" in error.message
