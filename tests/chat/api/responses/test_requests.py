"""Requests of responses: items as messages, fields as in chats, refusals with sent names."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import ConstraintKind, Delta, ErrorCode, FinishReason, RequestError, ToolCallDelta, ToolMode
from tests.chat.api.conftest import ADMITTED, completed, finished
from tests.chat.api.responses.conftest import answer, respond

TOOL = {
    "type": "function",
    "name": "f",
    "description": "d",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


async def messages(api, scripted, items: Any, **fields: Any) -> tuple[Any, ...]:
    await answer(api, input=items, **fields)
    return scripted.requests[-1].messages


def call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": '{"x":1}', **fields}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("hi", [("user", "hi")]),
        ([{"role": "user", "content": "hi"}], [("user", "hi")]),
        (
            [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be"}]}],
            [("developer", "be")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "output_text", "text": "yes", "annotations": []}]}],
            [("assistant", "yes")],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [("assistant", [{"type": "text", "text": "no"}])],
        ),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
            [("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
        ),
    ],
)
async def test_messages_are_read_in_every_form(api, scripted, items, expected):
    read = await messages(api, scripted, items)
    assert [(message["role"], message["content"]) for message in read] == expected


async def test_calls_join_the_preceding_message_with_their_reasoning(api, scripted):
    items = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I think"}]},
        {"role": "assistant", "content": "Let me see."},
        call("a"),
        call("b"),
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
        {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "in short"}]},
        call("c"),
    ]
    user, first, one, two, second = await messages(api, scripted, items)
    assert (user["content"], first["content"], first["reasoning"]) == ("q", "Let me see.", "I think")
    assert [made["id"] for made in first["tool_calls"]] == ["a", "b"]
    assert first["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
    results = [(message["role"], message["tool_call_id"], message["content"]) for message in (one, two)]
    assert results == [("tool", "a", "1"), ("tool", "b", "2")]
    assert (second["reasoning"], [made["id"] for made in second["tool_calls"]]) == ("in short", ["c"])


async def test_instructions_go_first_as_a_system_message(api, scripted):
    read = await messages(api, scripted, "hi", instructions="Be brief.")
    assert [(message["role"], message["content"]) for message in read] == [("system", "Be brief."), ("user", "hi")]


async def test_a_file_reaches_the_worker_with_its_own_path(api, scripted):
    part = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}
    [message] = await messages(api, scripted, [{"role": "user", "content": [part]}])
    assert message["content"][0]["file"] == {"filename": "a.txt", "file_data": part["file_data"]}


async def test_fields_have_the_same_effect_as_in_chats(api, scripted):
    made = await answer(
        api,
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        max_tool_calls=2,
        metadata={"a": "b"},
        parallel_tool_calls=False,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "text"}, "verbosity": "low"},
        prompt_cache_key="k",
        safety_identifier="s",
        user="u",
        service_tier="flex",
        top_k=3,
        seed=5,
        stop=["x"],
        chat_template_kwargs={"v": 1},
        stream_options={"include_obfuscation": False},
    )
    request = scripted.requests[0]
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (0.5, 3, 5)
    assert (request.stop.max_tokens, request.stop.stop, request.group) == (7, ("x",), "k")
    assert (request.tool_choice.mode, request.tool_choice.names, request.tool_choice.is_parallel) == (
        ToolMode.NAMED,
        ("f",),
        False,
    )
    assert request.tools[0].is_strict
    assert request.prompt.template_kwargs["reasoning_effort"] == "low"
    assert request.prompt.template_kwargs["verbosity"] == "low"
    assert scripted.traces[0].metadata == {"a": "b"}
    echoed = {
        name: made[name]
        for name in ("temperature", "top_p", "max_output_tokens", "max_tool_calls", "metadata", "service_tier", "user")
    }
    assert echoed == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "max_tool_calls": 2,
        "metadata": {"a": "b"},
        "service_tier": "flex",
        "user": "u",
    }
    assert made["tools"] == [TOOL]
    assert made["tool_choice"] == {"type": "function", "name": "f"}
    assert (made["reasoning"], made["text"]["verbosity"]) == ({"effort": "low", "summary": "auto"}, "low")


GROUPED = [
    {"type": "namespace", "name": "agents", "description": "d", "tools": [TOOL, {"type": "custom", "name": "patch"}]},
    {"type": "web_search", "external_web_access": True},
    {**TOOL, "strict": False},
]


async def test_hosted_tools_are_ignored_and_named(api, scripted):
    """Codex offers such tools in each request, all of which were refused."""
    response = await respond(api, tools=GROUPED)
    assert response.headers["x-lightcone-ignored"] == "tools.0.tools.1:custom, tools.1:web_search"
    assert [tool.name for tool in scripted.requests[0].tools] == ["agents__f", "f"]
    group, function = response.json()["tools"]
    assert (group["type"], group["name"], group["tools"]) == ("namespace", "agents", [TOOL])
    assert function == {**TOOL, "strict": False}


async def test_a_call_of_a_grouped_function_names_its_namespace(api, scripted):
    scripted.script = [
        ADMITTED,
        Delta(0, (3,), "", tool_calls=(ToolCallDelta(0, "call_1", "agents__f"), ToolCallDelta(0, arguments="{}"))),
        finished(reason=FinishReason.TOOL_CALLS),
        completed(),
    ]
    [item] = (await answer(api, tools=GROUPED))["output"]
    assert (item["type"], item["namespace"], item["name"], item["arguments"]) == ("function_call", "agents", "f", "{}")
    read = await messages(api, scripted, [{"role": "user", "content": "q"}, item])
    assert read[-1]["tool_calls"][0]["function"]["name"] == "agents__f"


async def test_a_grouped_function_can_be_forced(api, scripted):
    await answer(api, tools=GROUPED, tool_choice={"type": "function", "name": "f", "namespace": "agents"})
    assert scripted.requests[0].tool_choice.names == ("agents__f",)


async def test_allowed_tools_restrict_the_choice(api, scripted):
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}
    await answer(api, tools=[TOOL, {**TOOL, "name": "g"}], tool_choice=choice)
    assert (scripted.requests[0].tool_choice.mode, scripted.requests[0].tool_choice.names) == (
        ToolMode.REQUIRED,
        ("f",),
    )


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ({"type": "json_object"}, ConstraintKind.JSON_OBJECT),
        (
            {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            ConstraintKind.JSON_SCHEMA,
        ),
    ],
)
async def test_formats_constrain_the_text(api, scripted, form, kind):
    made = await answer(api, text={"format": form})
    assert scripted.requests[0].constraint.kind == kind
    assert made["text"]["format"] == form


REFUSALS = [
    ({"input": None}, "missing_required_parameter", "input"),
    ({"input": []}, "invalid_value", "input"),
    ({"input": 5}, "invalid_type", "input"),
    ({"input": [5]}, "invalid_type", "input.0"),
    ({"input": [{"type": "web_search_call"}]}, "invalid_value", "input.0.type"),
    ({"input": [{"role": "tool", "content": "x"}]}, "invalid_value", "input.0.role"),
    ({"input": [{"role": "user", "content": 5}]}, "invalid_type", "input.0.content"),
    ({"input": [{"role": "user", "content": [{"type": "audio"}]}]}, "invalid_value", "input.0.content.0.type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "missing_required_parameter",
        "input.0.content.0.text",
    ),
    (
        {"input": [{"type": "function_call", "call_id": "a", "name": "f"}]},
        "missing_required_parameter",
        "input.0.arguments",
    ),
    ({"input": [{"type": "function_call_output", "call_id": "", "output": "x"}]}, "invalid_type", "input.0.call_id"),
    ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "input.0.id"),
    ({"input": [{"type": "reasoning", "summary": "x"}]}, "invalid_value", "input.0.summary"),
    ({"input": [{"role": "user", "content": "x", "status": "x"}]}, "invalid_value", "input.0.status"),
    (
        {
            "input": [
                {"role": "user", "content": "x"},
                {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
            ]
        },
        "unsupported_parameter",
        "input.1.content.0.image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://x"}]}]},
        "invalid_media",
        "input.0.content.0.file_url",
    ),
    ({"instructions": 5}, "invalid_type", "instructions"),
    ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
    ({"max_output_tokens": 10**9}, "invalid_value", "max_output_tokens"),
    ({"max_tool_calls": 0}, "invalid_value", "max_tool_calls"),
    ({"temperature": 3}, "invalid_value", "temperature"),
    (
        {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        "unsupported_parameter",
        "tool_choice.type",
    ),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tools": [{}]}, "missing_required_parameter", "tools.0.type"),
    ({"tools": [{"type": "web_search"}, {"type": "function"}]}, "missing_required_parameter", "tools.1.name"),
    ({"tools": [{"type": "namespace", "name": "n"}]}, "invalid_type", "tools.0.tools"),
    ({"tools": [{"type": "namespace", "tools": []}]}, "invalid_type", "tools.0.name"),
    (
        {"tools": [{"type": "namespace", "name": "n", "description": {}, "tools": []}]},
        "invalid_type",
        "tools.0.description",
    ),
    (
        {"tools": [{"type": "namespace", "name": "n", "tools": [TOOL, {**TOOL, "parameters": 5}]}]},
        "invalid_type",
        "tools.0.tools.1.parameters",
    ),
    ({"guided_json": {}}, "unsupported_parameter", "guided_json"),
    ({"grammar": "x"}, "unsupported_parameter", "grammar"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools.0.name"),
    ({"tools": [{**TOOL, "parameters": 5}]}, "invalid_type", "tools.0.parameters"),
    ({"tools": [TOOL, TOOL]}, "invalid_value", "tools.1.name"),
    ({"tools": [5]}, "invalid_type", "tools.0"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "invalid_value", "tool_choice.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "mcp"}}, "unsupported_parameter", "tool_choice.type"),
    ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "n", "schema": 5}}}, "invalid_type", "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "missing_required_parameter", "text.format.name"),
    ({"text": {"verbosity": "x"}}, "invalid_value", "text.verbosity"),
    ({"reasoning": {"effort": "x"}}, "invalid_value", "reasoning.effort"),
    ({"reasoning": {"summary": "detailed"}}, "invalid_value", "reasoning.summary"),
    ({"include": ["x"]}, "invalid_value", "include.0"),
    ({"top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"truncation": "x"}, "invalid_value", "truncation"),
    ({"conversation": "c"}, "unsupported_parameter", "conversation"),
    ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"messages": []}, "unsupported_parameter", "messages"),
    ({"max_tokens": 5}, "unsupported_parameter", "max_tokens"),
    ({"response_format": {"type": "text"}}, "unsupported_parameter", "response_format"),
    ({"n": 2}, "unsupported_parameter", "n"),
    ({"n": 0}, "unsupported_parameter", "n"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": {}}]}]},
        "invalid_type",
        "input.0.content.0.file_data",
    ),
    ({"background": True, "store": False}, "invalid_value", "background"),
    ({"previous_response_id": "resp_x"}, "invalid_value", "previous_response_id"),
    ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "invalid_value", "input.0.id"),
]


@pytest.mark.parametrize(("fields", "code", "param"), REFUSALS)
async def test_bad_input_is_refused_with_its_sent_place(api, scripted, fields, code, param):
    response = await respond(api, **fields)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param), error
    assert response.json()["message"] == error["message"]
    assert scripted.readers == []


@pytest.mark.parametrize(
    ("param", "sent"),
    [
        ("messages", "input"),
        ("max_tokens", "max_output_tokens"),
        ("messages.1.content.0.file", "input.0.content.0"),
        ("messages.0.content", "instructions"),
        ("tools.0.function.parameters.type", "tools.0.parameters.type"),
        ("response_format.json_schema.schema", "text.format.schema"),
    ],
)
async def test_engine_refusals_name_the_sent_field(api, scripted, param, sent):
    scripted.refusal = RequestError(ErrorCode.INVALID_VALUE, f"{param} is wrong", param)
    response = await respond(api, instructions="x", tools=[TOOL])
    assert (response.json()["error"]["param"], response.json()["error"]["message"]) == (sent, f"{sent} is wrong")


def nested(num_levels: int) -> Any:
    value: Any = {}
    for _ in range(num_levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "aGk=", "x": nested(249)}]}]},
        {"text": {"format": {"type": "text", "x": nested(251)}}},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": TOOL["name"], "x": nested(252)}},
    ],
)
async def test_unknown_keys_at_any_depth_are_ignored(api, scripted, fields):
    """JSON may be read to a greater depth than it can be written."""
    assert (await answer(api, **fields))["status"] == "completed"


async def test_unknown_fields_and_nulls_equal_absent(api, scripted):
    fields = dict.fromkeys(
        (
            "instructions",
            "tools",
            "text",
            "reasoning",
            "store",
            "include",
            "metadata",
            "conversation",
            "max_tokens",
            "n",
        )
    )
    assert (await answer(api, **fields, whatever=1))["status"] == "completed"
