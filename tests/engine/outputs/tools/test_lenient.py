"""Hermes calls of small models are read in a fence, bare, or with doubled braces; other text is unchanged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.request import Tool
from engine.outputs.tools.registry import make_tool_parser
from tests.engine.outputs.tools.joined import Call, ParsedText, parse, parse_with
from tests.examples import examples

CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
WEATHER = Call("get_weather", '{"city": "Paris"}')

READ = {
    "what Qwen2.5-Coder writes": (
        '```json\n{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Paris"\n  }\n}\n```',
        ParsedText(calls=[Call("get_weather", '{\n    "city": "Paris"\n  }')]),
    ),
    "the braces of its template": (
        '{{"name": "get_weather", "arguments": {"city": "Paris"}}}',
        ParsedText(calls=[WEATHER]),
    ),
    "the tag around the tools": (f"I look.\n<tools>\n{CALL}\n</tools>", ParsedText("I look.\n", [WEATHER])),
    "after prose": (f"I look.\n\n```json\n{CALL}\n```\nDone.", ParsedText("I look.\n\nDone.", [WEATHER])),
    "after code": (f"```python\n{{}}\n```\n{CALL}", ParsedText("```python\n{}\n```\n", [WEATHER])),
    "after an object that is no call": (
        f'```json\n{{"a": 1}}\n```\n```json\n{CALL}\n```',
        ParsedText('```json\n{"a": 1}\n```\n', [WEATHER]),
    ),
    "the fence does not close": (f"```json\n{CALL}", ParsedText(calls=[WEATHER])),
    "arguments as a string": (
        '{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}',
        ParsedText(calls=[WEATHER]),
    ),
    "arguments before the name": (
        '{"arguments": {"city": "Paris"}, "name": "get_weather"}',
        ParsedText(calls=[WEATHER]),
    ),
    "as requests write calls": (f'{{"type": "function", "function": {CALL}}}', ParsedText(calls=[WEATHER])),
}

CONTENT = [
    "{",
    "```",
    "``` json",
    '{"name": "get_weather"}',
    '{"name": "get_weather", "temperature": 20}',
    '```json\n{"name": "get_weather"}\n```',
    '```json\n{"name": "say_hello", "arguments": {}}\n```',
    '{"city": "Paris", "name": "get_weather", "arguments": {}}',
    f'{{"calls": [\n  {CALL}\n]}}',
    f"Write {CALL} to call it.",
    f"```python\ncall = \\\n{CALL}\n```",
    '<function_call>{"name": "say_hello", "arguments": {}}</function_call>',
    '{"name": "get_weather", "argu',
    "```json\n[1, 2]\n```\n",
]


@pytest.mark.parametrize("case", READ)
def test_calls_are_read_as_small_models_write_them(case):
    """None of ten calls of the README's second model was recognised."""
    text, expected = READ[case]
    assert parse_with("hermes", text) == expected
    assert parse_with("hermes", *text) == expected


@pytest.mark.parametrize("text", CONTENT)
def test_text_that_is_no_call_is_unchanged(text):
    assert parse_with("hermes", text) == parse_with("hermes", *text) == ParsedText(content=text)


def test_strict_functions_are_called_within_the_tags_alone():
    """Only there a grammar enforces the schema of their arguments."""
    tools = (Tool("get_weather", {"type": "object"}, is_strict=True), Tool("get_time", {"type": "object"}))
    loose = CALL.replace("get_weather", "get_time")
    result = parse(make_tool_parser("hermes", tools), [f"{loose}\n<tool_call>{CALL}</tool_call>"])
    assert [call.name for call in result.calls] == ["get_time", "get_weather"]
    for text in (CALL, f"```json\n{CALL}\n```", f"<function_call>{CALL}</function_call>"):
        assert parse(make_tool_parser("hermes", tools), [text]) == ParsedText(content=text)


PIECES = [
    "```",
    "```json\n",
    "\n",
    " ",
    "{",
    "}",
    "{{",
    "[",
    ",",
    CALL,
    CALL[:30],
    CALL[30:],
    "<tool_call>",
    "</tool_call>",
    "<function_call>",
    "<tools>",
    "</tools>",
    "a",
]


@examples(300)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(0, 200), max_size=5))
def test_every_split_reads_the_same_and_loses_no_text(parts, cuts):
    text = "".join(parts)
    borders = sorted(cut % (len(text) + 1) for cut in cuts)
    pieces = [text[start:end] for start, end in zip([0, *borders], [*borders, len(text)], strict=True)]
    result = parse_with("hermes", *pieces)
    assert result == parse_with("hermes", text) == parse_with("hermes", *text)
    assert all(call.name == "get_weather" for call in result.calls)
    if not result.calls:
        assert result.content == text


@examples(100)
@given(st.dictionaries(st.text("abc", min_size=1), st.one_of(st.text(), st.integers(), st.lists(st.text('{}"\\`\n')))))
def test_any_arguments_survive_a_fence(arguments):
    call = json.dumps({"name": "get_weather", "arguments": arguments}, indent=2)
    result = parse_with("hermes", f"```json\n{call}\n```")
    assert [json.loads(call.arguments) for call in result.calls] == [arguments]
    assert result.content == ""
