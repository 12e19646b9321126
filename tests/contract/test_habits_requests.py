"""Habits of clients that write requests, items 12 to 20."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from chat.api.request.schema import ChatCompletionRequest
from tests.contract.habits import CITY, NAMED, QUESTION, TOOLS, Http, calling

pytestmark = pytest.mark.live

TYPED_WITHOUT_NULL = {
    "messages",
    *(
        "include_reasoning",
        "length_penalty",
        "include_stop_str_in_output",
        "ignore_eos",
        "min_tokens",
        "skip_special_tokens",
    ),
    *(
        "spaces_between_special_tokens",
        "bad_words",
        "echo",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
    ),
    *("priority", "request_id", "use_beam_search"),
}


@pytest.fixture(scope="module")
def http(lightcone: Any) -> Iterator[Http]:
    made = Http(lightcone)
    yield made
    made.close()


def test_item_12_unknown_fields_never_fail_known_but_impossible_ones_do(http):
    extra = {"field_of_tomorrow": {"a": [1]}}
    part = {"type": "text", "text": "Say hello.", **extra}
    tool = {"type": "function", "function": {**TOOLS[0]["function"], **extra}, **extra}
    unknown = {
        "messages": [{"role": "user", "content": [part], **extra}],
        "tools": [tool],
        "stream_options": None,
        "response_format": {"type": "text", **extra},
        **extra,
    }
    assert http.choice(**unknown)["message"]["content"]
    http.answer(stream_options=None, metadata={"a": "b"})
    for name, value in (("web_search_options", {}), ("modalities", ["text", "audio"])):
        error = http.error(400, **{name: value})
        assert (error["code"], error["param"]) == ("unsupported_parameter", name)


def test_item_13_null_is_the_same_as_absent(http):
    optional = set(ChatCompletionRequest().fields) - TYPED_WITHOUT_NULL
    assert len(optional) > 50
    nothing = dict.fromkeys(optional - {"max_tokens"}) | {"max_tokens": 4, "seed": 1}
    assert http.choice(**nothing)["message"]["content"]
    assert http.choice(max_tokens=None, max_completion_tokens=3)["finish_reason"] in ("stop", "length")
    in_messages = {"role": "user", "content": "Say hello.", "name": None, "tool_calls": None, "tool_call_id": None}
    assert http.prompt(messages=[in_messages]) == http.prompt()


def test_item_14_both_names_of_the_token_limit_work(http):
    for fields in (
        {"max_tokens": 3},
        {"max_completion_tokens": 3, "max_tokens": None},
        {"max_completion_tokens": 3, "max_tokens": 7},
    ):
        assert http.answer(**fields, ignore_eos=True)["usage"]["completion_tokens"] == 3


def test_item_15_the_developer_role_is_a_system_message_where_templates_lack_it(http):
    def prompt(role: str) -> str:
        return http.prompt(messages=[{"role": role, "content": "Be brief."}, *QUESTION])

    assert prompt("developer") == prompt("system")


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_item_16_content_may_be_a_list_of_text_parts_in_every_role(http, role):
    def prompt(content: Any) -> str:
        message = {"role": role, "content": content}
        if role == "tool":
            call = {"role": "assistant", "content": None, "tool_calls": [calling("weather", '{"city": "Rome"}')]}
            return http.prompt(messages=[*QUESTION, call, {**message, "tool_call_id": "call_1"}, *QUESTION])
        return http.prompt(messages=[message, *QUESTION] if role != "assistant" else [*QUESTION, message, *QUESTION])

    assert prompt([{"type": "text", "text": "It is sunny."}]) == prompt("It is sunny.")


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}], ids=["null", "missing", "empty"])
def test_item_17_an_assistant_that_only_called_stays_in_the_history(http, content):
    arguments = '{"city": "Rome"}'
    call = {"role": "assistant", "tool_calls": [calling("weather", arguments)], **content}
    conversation = [*QUESTION, call, {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    prompt = http.prompt(messages=conversation, tools=TOOLS)
    assert prompt.count('"city": "Rome"') == 1, "an object in the template, not a quoted string"
    call["tool_calls"] = [calling("weather", "no json {")]
    assert "no json {" in http.prompt(messages=conversation, tools=TOOLS)


def test_item_18_empty_tools_and_choices_without_tools_do_not_fail(http):
    for fields in (
        {"tools": []},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"tools": [], "tool_choice": "auto"},
    ):
        assert http.choice(**fields)["message"]["content"]
    for choice in ("required", NAMED):
        assert http.error(400, tool_choice=choice)["param"].startswith("tool")
        assert http.error(400, tool_choice=choice, tools=[])["param"].startswith("tool")


def test_item_19_without_parallel_calls_there_is_one_at_most(http):
    message = http.choice(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=60)["message"]
    assert len(message["tool_calls"]) == 1


STRICT = {
    "name": "trip",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/city"}, "days": {"enum": [1, 2]}},
        "required": ["to", "days"],
        "additionalProperties": False,
        "$defs": {"city": CITY},
    },
}


def test_item_20_schemas_are_enforced(http):
    """Every model enforces them, as every loadable model has a vocabulary for grammars."""
    for format in ({"type": "json_schema", "json_schema": STRICT}, {"type": "json_object", "schema": STRICT["schema"]}):
        for fields in ({}, {"temperature": 1.5, "seed": 3}):
            choice = http.choice(response_format=format, max_tokens=48, **fields)
            assert choice["finish_reason"] == "stop"
            jsonschema.validate(json.loads(choice["message"]["content"]), STRICT["schema"])
    cut = http.choice(response_format={"type": "json_schema", "json_schema": STRICT}, max_tokens=2)
    assert cut["finish_reason"] == "length"
    assert (
        "schema"
        in http.error(
            400, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "foo"}}}
        )["param"]
    )
