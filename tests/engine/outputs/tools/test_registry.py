"""Parsers are found by name and by template, and refused for models without their tokens."""

from pathlib import Path

import pytest

from engine.api import ModelLoadError
from engine.outputs.pieces import CallEnd, ContentText
from engine.outputs.reasoning.harmony import HarmonyReasoningParser
from engine.outputs.tools.registry import (
    FAMILIES,
    FORMATS,
    TEMPLATE_MARKS,
    check_tool_parser,
    choose_tool_parser,
    known_tool_parsers,
    make_tool_parser,
    tool_format,
)
from tests.engine.outputs.tools.examples import EXAMPLES, parser_of
from tests.engine.outputs.tools.joined import TOOLS, Call, ParsedText, parse, parse_with

WITHOUT_MARKER = {"llama3_json", "llama4_json", "llama4_pythonic", "pythonic", "granite", "xlam"}
"""The parsers of formats without a start marker."""


def test_an_unknown_parser_is_refused():
    with pytest.raises(ModelLoadError, match="hermes"):
        make_tool_parser("nothing", TOOLS)
    with pytest.raises(ModelLoadError):
        check_tool_parser("nothing", {}.get)


def test_every_parser_name_is_documented():
    page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
    assert [name for name in known_tool_parsers() if f"`{name}`" not in page] == []


def test_a_vocabulary_without_the_markers_is_refused():
    with pytest.raises(ModelLoadError, match="tool_calls_section_begin"):
        check_tool_parser("kimi_k2", {}.get)
    check_tool_parser("kimi_k2", dict.fromkeys(FORMATS["kimi_k2"].special, 1).get)
    check_tool_parser("hermes", {}.get)


def test_start_markers_equal_those_of_the_specification():
    assert {name for name in known_tool_parsers() if FORMATS[name].start_marker is None} == WITHOUT_MARKER


@pytest.mark.parametrize("name", sorted(set(known_tool_parsers()) - WITHOUT_MARKER))
def test_start_marker_precedes_the_calls(name):
    text = EXAMPLES[name]
    assert FORMATS[name].start_marker in text[: text.index("get_weather")]


WITH_FORMAT = [
    name for name in known_tool_parsers() if FORMATS[name].call_format and FORMATS[name].call_format.style == "json"
]


@pytest.mark.parametrize("name", WITH_FORMAT)
def test_a_call_that_is_written_by_its_format_is_read(name):
    form = FORMATS[name].call_format
    assert form.begin.startswith(form.trigger)
    number = "0" + form.number_end if form.number_end else ""
    call = f'{form.begin}get_weather{form.middle}{number}{{"city": "Bern"}}{form.end}'
    result = parse_with(name, call, call)
    assert [(result.name, result.arguments, result.is_complete) for result in result.calls] == [
        ("get_weather", '{"city": "Bern"}', True)
    ] * 2
    assert result.content == ""


def test_mistral_writes_calls_as_its_vocabulary_has_them():
    for find_token in ({}.get, {"[ARGS]": 1}.get):
        form = tool_format("mistral", find_token).call_format
        result = parse_with("mistral", f'{form.begin}get_weather{form.middle}{{"city": "Bern"}}{form.end}')
        assert result == ParsedText(calls=[Call("get_weather", '{"city": "Bern"}')])


def test_only_the_named_functions_may_be_called():
    text = EXAMPLES["hermes"]
    result = parse(make_tool_parser("hermes", TOOLS, ("get_time",)), [text])
    assert result.calls == [Call("get_time", "{}")]
    assert "get_weather" in result.content


@pytest.mark.parametrize("label", sorted(EXAMPLES))
def test_a_call_is_complete_before_the_next_one_has_a_name(label):
    text = EXAMPLES[label]
    result = make_tool_parser(parser_of(label), TOOLS).feed(text[: text.index("get_time")])
    assert CallEnd() in result


@pytest.mark.parametrize("name", ["hermes", "mistral", "llama3_json", "jamba", "kimi_k2", "deepseek_v31", "openai"])
def test_a_json_call_is_complete_with_its_last_brace(name):
    text = EXAMPLES[name]
    end = text.index("}", text.index("3")) + 1
    end += text[end : end + 1] == "}"
    parser = make_tool_parser(name, TOOLS)
    assert CallEnd() not in parser.feed(text[: end - 1])
    assert CallEnd() in parser.feed(text[end - 1 : end])


@pytest.mark.parametrize("name", [name for name, _ in TEMPLATE_MARKS])
def test_every_marked_parser_can_be_chosen(name):
    marks = next(marks for marked, marks in TEMPLATE_MARKS if marked == name)
    assert choose_tool_parser(" ".join(marks)) == name


def test_without_markers_the_choice_is_hermes():
    assert (
        choose_tool_parser(None)
        == choose_tool_parser("{{ messages }}")
        == choose_tool_parser("<tool_call>")
        == "hermes"
    )


@pytest.mark.parametrize("name", [name for name, _, _ in FAMILIES])
def test_a_family_decides_where_the_template_is_silent(name):
    _, architectures, tokens = next(row for row in FAMILIES if row[0] == name)
    find_token = dict.fromkeys(tokens, 1).get
    assert choose_tool_parser("{{ messages }}", architectures[0], find_token) == name
    assert choose_tool_parser("{{ messages }}", architectures[0], {}.get) == "hermes"
    assert choose_tool_parser("{{ messages }}", "BertModel", find_token) == "hermes"
    assert choose_tool_parser("<tool_call>", architectures[0], find_token) == "hermes"


def test_calls_come_through_the_reasoning_parser_of_harmony():
    reasoning, passed = HarmonyReasoningParser(keeps_calls=True), []
    for character in EXAMPLES["openai"]:
        passed += reasoning.feed(character)
    passed += reasoning.flush()
    result = parse_with("openai", *(piece.text for piece in passed if isinstance(piece, ContentText)))
    assert result == parse_with("openai", EXAMPLES["openai"])


def test_markers_reach_the_parser():
    for label, text in EXAMPLES.items():
        parser = make_tool_parser(parser_of(label), TOOLS)
        assert {marker for marker in FORMATS[parser_of(label)].special if marker in text} <= parser.control_texts
