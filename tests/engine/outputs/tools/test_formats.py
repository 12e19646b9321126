"""Each parser reads the calls of its models in every split, and no text makes it fail."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.tools.registry import known_tool_parsers
from tests.engine.outputs.tools.examples import EXAMPLES, TEXT, parser_of
from tests.engine.outputs.tools.joined import Call, ParsedText, parse_with
from tests.examples import examples

LABELS = sorted(EXAMPLES)


def test_every_parser_has_an_example():
    assert {parser_of(label) for label in LABELS} == set(known_tool_parsers())


@pytest.mark.parametrize("label", LABELS)
def test_a_parser_reads_the_calls_of_its_models(label):
    result = parse_with(parser_of(label), EXAMPLES[label])
    assert [(call.name, call.is_complete) for call in result.calls] == [("get_weather", True), ("get_time", True)]
    assert json.loads(result.calls[0].arguments) == {"city": 'Zürich "Nord" {1}', "days": 3}
    assert result.calls[1].arguments == "{}"
    assert result.content.replace("</think>", "").strip() in (TEXT.strip(), TEXT + "Done.", "")


@pytest.mark.parametrize("label", LABELS)
def test_every_split_of_the_text_reads_the_same(label):
    name, text = parser_of(label), EXAMPLES[label]
    whole = parse_with(name, text)
    assert parse_with(name, *text) == whole
    for cut in range(len(text)):
        assert parse_with(name, text[:cut], text[cut:]) == whole


@pytest.mark.parametrize("label", LABELS)
def test_a_truncated_answer_keeps_committed_calls(label):
    name, text = parser_of(label), EXAMPLES[label]
    whole = parse_with(name, text)
    for end in range(len(text)):
        cut = parse_with(name, text[:end])
        assert end % 5 or cut == parse_with(name, *text[:end])
        assert len(cut.calls) <= 2
        for call, complete in zip(cut.calls, whole.calls, strict=False):
            assert call.name == complete.name
            assert complete.arguments.startswith(call.arguments) or not call.is_complete
            assert call.arguments == complete.arguments or not call.is_complete


@pytest.mark.parametrize("label", LABELS)
def test_calls_of_unknown_functions_are_content(label):
    text = EXAMPLES[label].replace("get_weather", "get_news").replace("get_time", "get_news")
    result = parse_with(parser_of(label), text)
    assert result.calls == []
    assert result.content.count("get_news") == text.count("get_news")


@examples(150)
@given(st.sampled_from(LABELS), st.data())
def test_any_split_of_mangled_answers_reads_the_same(label, data):
    """Fragments of an answer in any order test every parser with text that is nearly its format."""
    name, text = parser_of(label), EXAMPLES[label]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    mangled = "".join(data.draw(st.lists(st.sampled_from(parts), max_size=8)))
    borders = sorted(data.draw(st.lists(st.integers(0, len(mangled)), max_size=8)))
    pieces = [mangled[start:end] for start, end in zip([0, *borders], [*borders, len(mangled)], strict=True)]
    assert parse_with(name, *pieces) == parse_with(name, mangled) == parse_with(name, *mangled)


@examples(200)
@given(st.sampled_from(known_tool_parsers()), st.lists(st.text("<>{}[]()\"':=,\\ \nab1|`", max_size=12), max_size=6))
def test_text_without_calls_is_content_as_it_is(name, pieces):
    result = parse_with(name, *pieces)
    assert result == ParsedText(content="".join(pieces))


@pytest.mark.parametrize("name", known_tool_parsers())
def test_white_space_alone_and_nothing_at_all_are_content(name):
    assert parse_with(name, " \n", " ") == ParsedText(content=" \n ")
    assert parse_with(name) == ParsedText()


OPEN = '<tool_call>{"name": "get_weather", "arguments": '
HERMES_CASES = {
    "arguments before the name wait for it": (
        '<tool_call>{"arguments": {"city": "Bern"}, "name": "get_weather"}</tool_call>',
        '{"city": "Bern"}',
    ),
    "arguments as a string are unescaped": (OPEN + r'"{\"city\": \"B\u00e4r\ud83d\ude00\"}"}', '{"city": "Bär😀"}'),
    "white space in arguments is kept": (OPEN + '{ "city" :  1 } }', '{ "city" :  1 }'),
    "missing arguments are an empty object": ('<tool_call>{"name": "get_weather"}</tool_call>', "{}"),
    "null is no arguments": (OPEN + "null}</tool_call>", "{}"),
    "parameters are arguments": ('<tool_call>{"name": "get_weather", "parameters": {"a": [1]}}', '{"a": [1]}'),
    "other members do not matter": (
        '<tool_call>{"id": {"x": [1]}, "name": "get_weather", "arguments": {"a": 1}, "z": 0}',
        '{"a": 1}',
    ),
    "no JSON at all up to the end marker": (OPEN + "no JSON}\n</tool_call>", "no JSON}"),
    "an end marker within a string is text": (OPEN + '{"a": "</tool_call> x"}}', '{"a": "</tool_call> x"}'),
    "a forgotten quote ends with the end marker": (OPEN + '{"a": "6\'2""}}</tool_call>', '{"a": "6\'2""}}'),
    "a brace too few": (OPEN + '{"a": 1}\n</tool_call>', '{"a": 1}'),
    "two braces too few": (OPEN + '{"a": [1</tool_call>', '{"a": [1'),
    "a brace too many": (OPEN + '{"a": 1}}}\n</tool_call>', '{"a": 1}'),
    "no end marker": (OPEN + '{"a": 1}}', '{"a": 1}'),
}


@pytest.mark.parametrize("case", HERMES_CASES)
def test_json_calls_in_variant_forms_are_read(case):
    text, arguments = HERMES_CASES[case]
    result = parse_with("hermes", text)
    assert result == ParsedText(calls=[Call("get_weather", arguments)])
    assert parse_with("hermes", *text) == result


def test_text_before_is_content_and_white_space_around_calls_is_dropped():
    call = '<tool_call>{"name": "get_time"}</tool_call>'
    result = parse_with("hermes", f" First,\n {call}\n\n{call} then\n\nmore \n{call}\n end. \n")
    assert result.content == " First,\n then\n\nmoreend."
    assert result.calls == [Call("get_time", "{}")] * 3


def test_white_space_alone_before_a_call_is_no_content():
    assert parse_with("hermes", '\n\n<tool_call>{"name": "get_time"}</tool_call>').content == ""


def test_a_call_cut_inside_its_name_is_content():
    text = 'Well. <tool_call>\n{"name": "get_wea'
    assert parse_with("hermes", text) == ParsedText(content=text)


def test_a_call_cut_inside_its_arguments_keeps_them_and_stays_open():
    result = parse_with("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Zü')
    assert result.calls == [Call("get_weather", '{"city": "Zü', is_complete=False)]


def test_known_calls_beside_unknown_ones_in_a_list_are_committed():
    result = parse_with(
        "hunyuan_a13b", '<tool_calls>[{"name": "x", "arguments": {}}, {"name": "get_time"}]</tool_calls>'
    )
    assert result == ParsedText(
        content='<tool_calls>[{"name": "x", "arguments": {}}]</tool_calls>', calls=[Call("get_time", "{}")]
    )


def test_llama_calls_may_stand_within_text():
    result = parse_with("llama3_json", 'Here: {"name": "get_time", "parameters": {}} More?')
    assert result == ParsedText(content="Here: More?", calls=[Call("get_time", "{}")])


def test_known_calls_behind_a_broken_one_are_committed():
    result = parse_with(
        "minimax", '<tool_calls>\n{"name": "get_time"}\n{no JSON here}\n{"name": "get_time"}\n</tool_calls>'
    )
    assert result.calls == [Call("get_time", "{}")] * 2
    assert result.content == "{no JSON here}</tool_calls>"


def test_known_tagged_calls_beside_unknown_ones_are_committed():
    call = '<invoke name="{}"><parameter name="city">Bern</parameter></invoke>'
    result = parse_with(
        "minimax_m2", f"<minimax:tool_call>{call.format('other')}\n{call.format('get_time')}</minimax:tool_call>"
    )
    assert result.calls == [Call("get_time", '{"city": "Bern"}')]
    assert result.content == f"<minimax:tool_call>{call.format('other')}</minimax:tool_call>"


def test_known_python_calls_beside_unknown_ones_are_committed():
    result = parse_with("olmo3", "<function_calls>other(x=b')', y=[1])\nget_time()</function_calls> Done")
    assert result.calls == [Call("get_time", "{}")]
    assert result.content == "<function_calls>other(x=b')', y=[1])</function_calls> Done"


def test_a_json_answer_that_is_no_call_is_content():
    text = '{"answer": [1, 2], "name": "get_time"}'
    assert parse_with("llama3_json", *text) == ParsedText(content=text)


def test_kimi_keeps_the_ids_of_the_model():
    result = parse_with("kimi_k2", EXAMPLES["kimi_k2"])
    assert [call.call_id for call in result.calls] == ["functions.get_weather:0", "functions.get_time:1"]


def test_kimi_may_spell_its_section_in_the_singular():
    """The marker was left as content."""
    text = EXAMPLES["kimi_k2"].replace("calls_section", "call_section")
    assert parse_with("kimi_k2", text) == parse_with("kimi_k2", *text) == parse_with("kimi_k2", EXAMPLES["kimi_k2"])


@pytest.mark.parametrize("name", ["llama3_json", "hermes"])
def test_a_call_may_be_wrapped_as_requests_write_calls(name):
    """The call was found, but its head left as content."""
    call = '{"type": "function", "function": {"name": "get_time", "parameters": {"a": "}"}}, "id": "x"}'
    text = call if name == "llama3_json" else f"<tool_call>{call}</tool_call>"
    assert parse_with(name, text) == parse_with(name, *text) == ParsedText(calls=[Call("get_time", '{"a": "}"}')])
    for unknown in (text.replace("get_time", "f"), text.replace('"name"', '"nome"')):
        assert parse_with(name, unknown) == parse_with(name, *unknown) == ParsedText(content=unknown)


def test_mistral_keeps_the_ids_of_the_model():
    result = parse_with("mistral", "[TOOL_CALLS]get_time[CALL_ID]abcDEF123[ARGS]{}")
    assert result.calls == [Call("get_time", "{}", call_id="abcDEF123")]


def test_harmony_channels_are_reasoning_content_and_calls():
    result = parse_with(
        "openai",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_time "
        "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Noon.<|return|>",
    )
    assert result == ParsedText(content="Noon.", calls=[Call("get_time", "{}")], reasoning="Hm.")


def test_harmony_text_that_a_reasoning_parser_passes_on_is_content():
    assert parse_with("openai", "to=be or not", " to be") == ParsedText(content="to=be or not to be")


def test_harmony_calls_may_begin_with_their_recipient():
    result = parse_with("openai", " to=functions.get_time<|channel|>commentary json<|message|>{}")
    assert result == ParsedText(calls=[Call("get_time", "{}")])
