"""Arguments with any characters survive the round trip through each format."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.request import Tool
from engine.outputs.tools.registry import make_tool_parser
from tests.engine.outputs.tools.joined import parse
from tests.examples import examples

TYPES = {
    "s": "string",
    "t": "string",
    "i": "integer",
    "x": "number",
    "b": "boolean",
    "a": "array",
    "o": "object",
    "n": ["string", "null"],
}
TOOLS = (
    Tool("do_it", {"type": "object", "properties": {name: {"type": kind} for name, kind in TYPES.items()}}),
    Tool("ns.sub"),
)

PIECES = ["a", "é", "😀", "\t", '"', "'", "\\", *"{}[],:<>=()#|3", " ", "</", "&amp;", "true", "\\n", "```"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=6)
STRING = TEXT.map("".join)
SCALAR = st.one_of(STRING, st.integers(-999, 999), st.floats(-9, 9, width=16), st.booleans(), st.none())
MEMBERS = st.dictionaries(st.sampled_from(["k", "two words", "日本"]), SCALAR, max_size=2)
VALUE = st.one_of(SCALAR, st.lists(SCALAR, max_size=2), MEMBERS)
LINED = st.lists(STRING, min_size=1, max_size=3).map("\n".join)
VALUES = {
    "s": LINED.map(lambda text: f"a{text}z"),
    "t": STRING,
    "i": st.integers(-99, 99),
    "x": st.floats(-9, 9, width=16),
    "b": st.booleans(),
    "a": st.lists(VALUE, max_size=3),
    "o": st.dictionaries(st.sampled_from(["k", "two words", "日本"]), VALUE, max_size=2),
    "n": st.sampled_from([None, "word"]),
}
ARGUMENTS = st.fixed_dictionaries({}, optional=VALUES)
CALLS = st.lists(st.one_of(st.tuples(st.just("do_it"), ARGUMENTS), st.just(("ns.sub", {}))), min_size=1, max_size=3)


def _object(call, key="arguments", name_key="name"):
    return json.dumps({name_key: call[0], key: call[1]}, ensure_ascii=len(call[1]) % 2 == 0)


def _list(calls):
    return "[" + ", ".join(map(_object, calls)) + "]"


def _plain(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _python(call):
    return f"{call[0]}({', '.join(f'{name}={value!r}' for name, value in call[1].items())})"


def _qwen(call, begin, end):
    parameters = "".join(f"<parameter={name}>\n{_plain(value)}\n</parameter>\n" for name, value in call[1].items())
    return f"{begin}\n<function={call[0]}>\n{parameters}</function>\n{end}"


def _invoke(call, prefix, attribute=lambda value: ""):
    parameters = "".join(
        f'<{prefix}parameter name="{name}"{attribute(value)}>{_plain(value)}</{prefix}parameter>\n'
        for name, value in call[1].items()
    )
    return f'<{prefix}invoke name="{call[0]}">\n{parameters}</{prefix}invoke>\n'


def _glm(call, line):
    pairs = [
        f"<arg_key>{name}</arg_key>{line}<arg_value>{_plain(value)}</arg_value>{line}"
        for name, value in call[1].items()
    ]
    return f"<tool_call>{call[0]}{line}{''.join(pairs)}</tool_call>"


def _gemma(value, quote):
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_gemma(item, quote)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_gemma(item, quote) for item in value) + "]"
    return quote + value + quote if isinstance(value, str) else json.dumps(value)


def _all(write, begin="", end="", between=""):
    return lambda calls: begin + between.join(map(write, calls)) + end


DSML = "｜DSML｜"
FORMATS = {
    "hermes": _all(lambda call: f"<tool_call>\n{_object(call)}\n</tool_call>", between="\n"),
    "mistral": lambda calls: f"[TOOL_CALLS]{_list(calls)}",
    "mistral, newer": _all(lambda call: f"[TOOL_CALLS]{call[0]}{json.dumps(call[1])}"),
    "llama3_json": _all(lambda call: _object(call, "parameters"), between="; "),
    "llama4_pythonic": _all(_python, "<|python_start|>[", "]<|python_end|>", ", "),
    "pythonic": _all(_python, "[", "]", ", "),
    "olmo3": _all(_python, "<function_calls>\n", "\n</function_calls>", "\n"),
    "granite": lambda calls: f"<|tool_call|>{_list(calls)}",
    "jamba": lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
    "xlam": lambda calls: f"```json\n{_list(calls)}\n```",
    "phi4_mini_json": lambda calls: f"functools{_list(calls)}",
    "deepseek_v3": _all(
        lambda call: (
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call[0]}\n```json\n{json.dumps(call[1])}\n```<｜tool▁call▁end｜>"
        ),
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "\n",
    ),
    "deepseek_v32": _all(
        lambda call: _invoke(call, DSML, lambda value: f' string="{json.dumps(isinstance(value, str))}"'),
        f"<{DSML}function_calls>\n",
        f"</{DSML}function_calls>",
    ),
    "glm45": _all(lambda call: _glm(call, "\n"), between="\n"),
    "glm47": _all(lambda call: _glm(call, "")),
    "qwen3_coder": _all(lambda call: _qwen(call, "<tool_call>", "</tool_call>"), between="\n"),
    "seed_oss": _all(lambda call: _qwen(call, "<seed:tool_call>", "</seed:tool_call>")),
    "minimax_m2": _all(lambda call: _invoke(call, ""), "<minimax:tool_call>\n", "</minimax:tool_call>"),
    "step3": _all(
        lambda call: f"<｜tool_call_begin｜>function<｜tool_sep｜>{_invoke(call, 'steptml:')}<｜tool_call_end｜>",
        "<｜tool_calls_begin｜>",
        "<｜tool_calls_end｜>",
    ),
    "functiongemma": _all(
        lambda call: f"<start_function_call>call:{call[0]}{_gemma(call[1], '<escape>')}<end_function_call>"
    ),
    "gemma4": _all(lambda call: f"<|tool_call>call:{call[0]}{_gemma(call[1], '<|' + chr(34) + '|>')}<tool_call|>"),
}


@pytest.mark.parametrize("label", sorted(FORMATS))
@examples(25)
@given(calls=CALLS)
def test_arguments_come_back_as_they_were_written(label, calls):
    text = FORMATS[label](calls)
    name = label.partition(",")[0]
    result = parse(make_tool_parser(name, TOOLS), [text])
    assert [(call.name, json.loads(call.arguments), call.is_complete) for call in result.calls] == [
        (*call, True) for call in calls
    ]
    assert result.content == ""
    assert parse(make_tool_parser(name, TOOLS), list(text)) == result
