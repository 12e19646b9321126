"""Tools: forced, chosen by the model (which is shown by example how), none, and the deprecated form."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 16}},
    "required": ["city"],
    "additionalProperties": False,
}
CLOCK = {
    "type": "object",
    "properties": {"zone": {"enum": ["UTC", "CET"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock", "description": "Time in a zone", "parameters": CLOCK}},
]
NAMED = {"type": "function", "function": {"name": "clock"}}


def called(city: str, *, times: int = 1) -> str:
    return "\n".join([f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'] * times)


def asked(*, times: int = 1) -> list[dict[str, str]]:
    """A conversation that shows how a tool is called, and asks for one more."""
    shown = [
        {"role": role, "content": text}
        for city in ("Rome", "Oslo")
        for role, text in (("user", f"Weather in {city}?"), ("assistant", called(city, times=times)))
    ]
    return [*shown, {"role": "user", "content": "Weather in Paris?"}]


AUTO: dict[str, Any] = {"messages": asked(), "tools": TOOLS, "max_tokens": 60}


def calls(choice) -> list[tuple[str, Any]]:
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in choice["message"]["tool_calls"]
    ]


@pytest.mark.parameter("tools")
def test_tools_are_shown_to_the_model(ask):
    rendered = ask.prompt(tools=TOOLS)
    assert "Weather of a city" in rendered
    assert '"zone"' in rendered
    assert ask.prompt(tools=[]) == ask.prompt()


@pytest.mark.parametrize(
    "bad",
    [
        [{"type": "custom", "custom": {"name": "x"}}],
        [{"type": "function"}],
        [{"type": "function", "function": {"name": ""}}],
        [TOOLS[0], TOOLS[0]],
        [{"type": "function", "function": {"name": "x", "parameters": {"type": "foo"}}}],
        {"a": 1},
    ],
    ids=lambda bad: str(bad)[:50],
)
@pytest.mark.parameter("tools")
def test_bad_tools_are_refused(ask, bad):
    assert ask.refusal(tools=bad)[0].startswith("tools")


@pytest.mark.parameter("tool_choice", "tools")
def test_the_model_chooses_to_call(ask):
    choice = ask.choice(**AUTO)
    assert calls(choice) == [("weather", {"city": "Paris"})]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert choice["message"]["tool_calls"][0]["id"].startswith("chatcmpl-tool-")
    assert ask.choice(**AUTO, tool_choice="auto")["message"]["tool_calls"][0]["function"]["name"] == "weather"


@pytest.mark.parameter("tool_choice", "tools")
def test_a_streamed_call_joins_to_the_plain_one(ask):
    chunks = ask.chunks(**AUTO)
    pieces = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    first, *later = pieces
    assert (first["index"], first["type"], first["function"]["name"], first["function"]["arguments"]) == (
        0,
        "function",
        "weather",
        "",
    )
    assert first["id"]
    assert all(set(piece) == {"index", "function"} for piece in later)
    assert json.loads("".join(piece["function"]["arguments"] for piece in pieces)) == {"city": "Paris"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parameter("tool_choice")
def test_with_none_nothing_is_parsed(ask):
    choice = ask.choice(**AUTO, tool_choice="none")
    assert "tool_calls" not in choice["message"]
    assert "<tool_call>" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parameter("tool_choice")
def test_a_required_call_is_made_and_valid(ask):
    for fields in ({}, {"temperature": 1.5, "seed": 2}):
        choice = ask.choice(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=80, **fields)
        ((name, arguments),) = calls(choice)
        jsonschema.validate(arguments, {"weather": WEATHER, "clock": CLOCK}[name])
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)


@pytest.mark.parameter("tool_choice")
def test_a_named_function_is_called_and_the_answer_stops(ask):
    for choice in ask.answer(tools=TOOLS, tool_choice=NAMED, max_tokens=40, n=2, temperature=1, seed=3)["choices"]:
        ((name, arguments),) = calls(choice)
        jsonschema.validate(arguments, CLOCK)
        assert (name, choice["finish_reason"]) == ("clock", "stop")
    chunks = ask.chunks(tools=TOOLS, tool_choice={"function": {"name": "clock"}}, max_tokens=40)
    pieces = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert (pieces[0]["index"], pieces[0]["function"]) == (0, {"name": "clock", "arguments": ""})
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parameter("tool_choice")
def test_a_function_without_parameters_has_empty_arguments(ask):
    bare = [{"function": {"name": "now"}}]
    assert calls(
        ask.choice(tools=bare, tool_choice={"type": "function", "function": {"name": "now"}}, max_tokens=20)
    ) == [("now", {})]


@pytest.mark.parameter("tool_choice")
def test_only_a_listed_subset_may_be_called(ask):
    subset = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
    ((name, _),) = calls(ask.choice(**AUTO, tool_choice=subset, parallel_tool_calls=False))
    assert name == "clock"
    auto = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    assert "tool_calls" not in ask.choice(**AUTO, tool_choice=auto)["message"], "what calls another is text"


@pytest.mark.parametrize(
    "bad",
    [
        {"tool_choice": "required"},
        {"tool_choice": NAMED},
        {"tool_choice": "perhaps", "tools": TOOLS},
        {"tool_choice": {"type": "function", "function": {"name": "nobody"}}, "tools": TOOLS},
        {"tool_choice": {"type": "function"}, "tools": TOOLS},
        {"tool_choice": {"type": "custom", "custom": {"name": "clock"}}, "tools": TOOLS},
    ],
    ids=lambda bad: str(bad["tool_choice"])[:50],
)
@pytest.mark.parameter("tool_choice")
def test_a_choice_that_cannot_be_is_refused(ask, bad):
    assert ask.refusal(**bad)[0].startswith("tool_choice")


@pytest.mark.parameter("tool_choice", "structured_outputs")
def test_a_forced_tool_and_a_constraint_exclude_each_other_but_not_a_format(ask):
    assert (
        ask.refusal(tools=TOOLS, tool_choice="required", structured_outputs={"regex": "a"})[0] == "structured_outputs"
    )
    forced = ask.choice(tools=TOOLS, tool_choice=NAMED, response_format={"type": "json_object"}, max_tokens=40)
    assert calls(forced)[0][0] == "clock"


@pytest.mark.parameter("tool_choice")
def test_a_call_cut_by_the_limit_keeps_its_beginning(ask):
    choice = ask.choice(tools=TOOLS, tool_choice=NAMED, max_tokens=3)
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith("{")


@pytest.mark.parameter("parallel_tool_calls")
def test_without_parallel_calls_there_is_one(ask):
    twice = {"messages": asked(times=2), "tools": TOOLS, "max_tokens": 120}
    assert len(calls(ask.choice(**twice))) == 2
    assert len(calls(ask.choice(**twice, parallel_tool_calls=None))) == 2
    one = ask.answer(**twice, parallel_tool_calls=False)
    assert len(calls(one["choices"][0])) == 1
    assert one["usage"]["completion_tokens"] < 60, "generation ends with the first call"


@pytest.mark.parameter("functions", "function_call")
def test_the_deprecated_form_is_answered_in_kind(ask):
    functions = [tool["function"] for tool in TOOLS]
    chosen = ask.choice(messages=asked(), functions=functions, max_tokens=60)
    assert chosen["message"]["function_call"]["name"] == "weather"
    assert (chosen["finish_reason"], "tool_calls" in chosen["message"]) == ("function_call", False)
    named = ask.choice(functions=functions, function_call={"name": "clock"}, max_tokens=40)
    jsonschema.validate(json.loads(named["message"]["function_call"]["arguments"]), CLOCK)
    assert named["finish_reason"] == "stop"
    assert (
        ask.choice(messages=asked(), functions=functions, function_call="none", max_tokens=60)["message"][
            "function_call"
        ]
        is None
    )
    pieces = [
        chunk["choices"][0]["delta"].get("function_call")
        for chunk in ask.chunks(messages=asked(), functions=functions, max_tokens=60)
    ]
    given = [piece for piece in pieces if piece]
    assert given[0] == {"name": "weather", "arguments": ""}
    assert json.loads("".join(piece["arguments"] for piece in given)) == {"city": "Paris"}


@pytest.mark.parameter("functions", "function_call")
def test_the_two_forms_do_not_mix(ask):
    functions = [tool["function"] for tool in TOOLS]
    assert ask.refusal(functions=functions, tools=TOOLS)[0] in ("functions", "function_call")
    assert ask.refusal(functions=functions, tool_choice="none")[0] in ("functions", "function_call")
    assert ask.refusal(function_call={"name": "clock"})[0] == "function_call"


@pytest.mark.parameter("tools")
def test_a_conversation_continues_with_a_result(ask):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    messages = [
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny, 31 degrees"},
    ]
    rendered = ask.prompt(messages=messages, tools=TOOLS)
    assert "sunny, 31 degrees" in rendered
    assert ask.text(messages=messages, tools=TOOLS, max_tokens=24)
