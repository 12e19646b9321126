"""Hostile output: every parser stays linear, never fails and evaluates nothing."""

import gc
import json
import sys

import pytest

from engine.outputs.tools.forced import NamedCallReader, RequiredCallsReader
from engine.outputs.tools.registry import known_tool_parsers, make_tool_parser
from tests.engine.outputs.tools.examples import EXAMPLES, parser_of
from tests.engine.outputs.tools.joined import TOOLS, parse, parse_with

UNITS = ["A=", "{", "[", "(", '"', "'", "\\", "<", "</", " ", "\n", ",", "[A(A=", '{"name":', "<tool_call>", "0", "```"]
LONGEST_WAIT = 64
"""More characters than any marker has, two of them in a row included."""


def work_of(make, pieces):
    """Count calls and resumptions of Python code, and calls of C functions, while the pieces are read."""
    num_calls = 0

    def count(frame, event, argument):
        nonlocal num_calls
        num_calls += 1

    parser = make()
    gc.disable()  # finalizers of garbage of other tests do not count
    sys.setprofile(count)
    try:
        for piece in pieces:
            parser.feed(piece)
        parser.flush()
    finally:
        sys.setprofile(None)
        gc.enable()
    return num_calls


def assert_is_linear(make, start, unit):
    """Check that four times the text costs little more than four times the work.

    Unread text must stay short, so that feeds copy little.
    """
    small, large = unit * (44 // len(unit)), unit * 4 * (44 // len(unit))
    parser = make()
    for piece in (start, *large):  # also builds the searches once
        parser.feed(piece)
        assert len(parser._reader.text) - parser._reader.at <= LONGEST_WAIT, unit
    parser.flush()
    base = work_of(make, [start])
    for split in (list, lambda text: [text]):
        less, more = work_of(make, [start, *split(small)]) - base, work_of(make, [start, *split(large)]) - base
        assert more <= 5 * less + 200, unit


@pytest.mark.parametrize("name", known_tool_parsers())
def test_work_is_linear_in_any_output(name):
    for unit in UNITS:
        assert_is_linear(lambda: make_tool_parser(name, TOOLS), "", unit)


@pytest.mark.parametrize("label", sorted(EXAMPLES))
def test_work_is_linear_inside_a_call(label):
    text = EXAMPLES[label]
    start = text[: text.index("rich") + 4]
    for unit in UNITS:
        assert_is_linear(lambda: make_tool_parser(parser_of(label), TOOLS), start, unit)


@pytest.mark.parametrize("label", sorted(EXAMPLES))
def test_work_is_linear_in_begin_markers(label):
    text = EXAMPLES[label]
    assert_is_linear(lambda: make_tool_parser(parser_of(label), TOOLS), "", text[: text.index("get_weather")])


@pytest.mark.parametrize("unit", UNITS)
def test_work_of_forced_calls_is_linear(unit):
    for start in ("", '[{"name": "get_weather", "parameters": {"city": ', '{"city": "'):
        assert_is_linear(lambda: RequiredCallsReader(frozenset({"get_weather"})), start, unit)
        assert_is_linear(lambda: NamedCallReader("get_weather"), start, unit)


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "jamba", "mistral", "xlam", "phi4_mini_json"])
def test_twenty_thousand_brackets_are_content(name):
    text = "{" * 20_000
    assert parse_with(name, text).content == text


def test_a_hundred_thousand_brackets_in_arguments_pass():
    text = "{" * 100_000
    result = parse_with("hermes", '<tool_call>{"name": "get_weather", "arguments": ' + text)
    assert result.calls[0].arguments == text
    result = parse(RequiredCallsReader(frozenset({"f"})), ['[{"name": "f", "parameters": ', *text[:1000], text[1000:]])
    assert result.calls[0].arguments == text


CODE = "__import__('os').system('id')"


@pytest.mark.parametrize("name", ["qwen3_coder", "qwen3_xml", "seed_oss", "mimo", "step3p5"])
@pytest.mark.parametrize("key", ["city", "days", "ratio", "is_metric", "tags", "options", "limit", "nowhere"])
def test_code_in_a_tagged_value_is_a_plain_string(name, key):
    begin = EXAMPLES[name][EXAMPLES[name].index("<") : EXAMPLES[name].index("<function=")]
    result = parse_with(name, f"{begin}<function=get_weather><parameter={key}>{CODE}</parameter></function>")
    assert json.loads(result.calls[0].arguments) == {key: CODE}


@pytest.mark.parametrize(
    "value", [CODE, "[x for x in ()]", "1 + 1", "f'{1}'", "lambda: 0", "city", "().__class__", "2**9**9"]
)
def test_code_in_a_python_call_is_a_plain_string(value):
    result = parse_with("pythonic", f"[get_weather(city={value}, days=1)]")
    assert json.loads(result.calls[0].arguments) == {"city": value, "days": 1}


def test_a_python_call_too_deep_is_a_plain_string():
    value = "[" * 10_000 + "]" * 10_000
    result = parse_with("pythonic", f"[get_weather(city={value})]")
    assert json.loads(result.calls[0].arguments) == {"city": value}


def test_a_tagged_object_too_deep_is_a_plain_string():
    value = "[" * 10_000 + "]" * 10_000
    result = parse_with(
        "qwen3_coder", f"<tool_call><function=get_weather><parameter=tags>{value}</parameter></function></tool_call>"
    )
    assert json.loads(result.calls[0].arguments) == {"tags": value}
