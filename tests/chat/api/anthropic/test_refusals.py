"""Refused requests: Anthropic's error shape with the sent field names."""

import json

import pytest

from chat.generation.completions import LimitExceeded
from chat.generation.limits import LimitKind
from engine.api import EngineFailure, EngineUnavailable, ErrorCode, RequestError
from tests.chat.api.anthropic.shapes import COUNT_ROUTE, ROUTE, TOOL, TURN, message, post
from tests.chat.api.conftest import HELLO, KEY

CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}


def image(**changes):
    return {**IMAGE, "source": {**IMAGE["source"], **changes}}


def turn(*blocks, role="user"):
    return {"messages": [TURN, {"role": role, "content": list(blocks)}]}


def document(**source):
    return turn({"type": "document", "source": source})


INVALID, UNSUPPORTED, MISSING, TYPE = (
    "invalid_value",
    "unsupported_parameter",
    "missing_required_parameter",
    "invalid_type",
)
FIELDS = [
    ({"max_tokens": None}, TYPE, "max_tokens"),
    ({"max_tokens": 0}, INVALID, "max_tokens"),
    ({"temperature": 2.5}, INVALID, "temperature"),
    ({"temperature": -1}, INVALID, "temperature"),
    ({"top_p": 1.5}, INVALID, "top_p"),
    ({"top_k": -1}, INVALID, "top_k"),
    ({"stop_sequences": ["x"] * 33}, INVALID, "stop_sequences"),
    ({"stop_sequences": ["x", ""]}, INVALID, "stop_sequences.1"),
    ({"stop_sequences": "x"}, TYPE, "stop_sequences"),
    ({"stop_sequences": [5]}, TYPE, "stop_sequences.0"),
    ({"system": 5}, TYPE, "system"),
    ({"system": [IMAGE]}, INVALID, "system.0.type"),
    ({"system": [{"type": "text", "text": 5}]}, TYPE, "system.0.text"),
    ({"model": "m" * 257}, INVALID, "model"),
    ({"metadata": {"user_id": "x" * 513}}, INVALID, "metadata.user_id"),
    ({"service_tier": "fast"}, INVALID, "service_tier"),
    ({"container": "c"}, UNSUPPORTED, "container"),
    ({"mcp_servers": [{"url": "http://10.0.0.1"}]}, UNSUPPORTED, "mcp_servers"),
    (
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        UNSUPPORTED,
        "context_management.edits.0",
    ),
    ({"context_management": {"edits": 5}}, TYPE, "context_management.edits"),
    ({"speed": "fast"}, UNSUPPORTED, "speed"),
    ({"inference_geo": "eu"}, UNSUPPORTED, "inference_geo"),
    ({"thread": {}}, UNSUPPORTED, "thread"),
    ({"compaction": {}}, UNSUPPORTED, "compaction"),
    ({"fallbacks": ["m"]}, UNSUPPORTED, "fallbacks"),
    ({"fallback_credit_token": "t"}, UNSUPPORTED, "fallback_credit_token"),
    ({"billing_policy": {"type": "billing_policy", "bill_to": "user_profile"}}, UNSUPPORTED, "billing_policy.bill_to"),
    ({"thinking": {"type": "enabled"}}, MISSING, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 9}}, INVALID, "thinking.budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 0}}, INVALID, "thinking.budget_tokens"),
    ({"thinking": {"type": "disabled", "budget_tokens": 5}}, INVALID, "thinking.budget_tokens"),
    ({"thinking": {"type": "between_tools"}}, INVALID, "thinking.type"),
    ({"thinking": "on"}, TYPE, "thinking"),
    ({"output_config": {"effort": "none"}}, INVALID, "output_config.effort"),
    ({"output_config": {"task_budget": {"total": 5}}}, UNSUPPORTED, "output_config.task_budget"),
    ({"output_config": {"format": {"type": "xml"}}}, INVALID, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, MISSING, "output_config.format.schema"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "any"}}, INVALID, "tool_choice"),
    (
        {"tools": [TOOL, {"type": "bash_20250124", "name": "b"}], "tool_choice": {"type": "tool", "name": "b"}},
        INVALID,
        "tool_choice.name",
    ),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}, {**TOOL, "name": ""}]}, INVALID, "tools.1.name"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}, TOOL, TOOL]}, INVALID, "tools.2.name"),
    ({"tools": [{"name": "f"}]}, MISSING, "tools.0.input_schema"),
    ({"tools": [{**TOOL, "input_schema": {"type": "string"}}]}, INVALID, "tools.0.input_schema.type"),
    ({"tools": [TOOL, TOOL]}, INVALID, "tools.1.name"),
    ({"tools": [TOOL, {**TOOL, "name": ""}]}, INVALID, "tools.1.name"),
    ({"tools": [{**TOOL, "defer_loading": True}]}, UNSUPPORTED, "tools.0.defer_loading"),
    ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}, UNSUPPORTED, "tools.0.allowed_callers"),
    ({"tools": [{**TOOL, "input_examples": [5]}]}, TYPE, "tools.0.input_examples.0"),
    ({"tool_choice": {"type": "any"}}, INVALID, "tool_choice"),
    ({"tool_choice": {"type": "required"}}, INVALID, "tool_choice.type"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, MISSING, "tool_choice.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "f"}}, INVALID, "tool_choice.name"),
    ({"messages": []}, INVALID, "messages"),
    ({"messages": "hi"}, TYPE, "messages"),
    ({"messages": [5]}, TYPE, "messages.0"),
    ({"messages": [{"content": "hi"}]}, MISSING, "messages.0.role"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, INVALID, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, MISSING, "messages.0.content"),
    ({"messages": [{"role": "user", "content": 5}]}, TYPE, "messages.0.content"),
    (turn(5), TYPE, "messages.1.content.0"),
    (turn({"text": "x"}), INVALID, "messages.1.content.0.type"),
    (turn({"type": "text", "text": None}), TYPE, "messages.1.content.0.text"),
    (turn(CALL), INVALID, "messages.1.content.0.type"),
    (turn(IMAGE), UNSUPPORTED, "messages.1.content.0.source"),
    (turn({"type": "image"}), TYPE, "messages.1.content.0.source"),
    (turn({"type": "image", "source": {"type": "content"}}), INVALID, "messages.1.content.0.source.type"),
    (turn({"type": "image", "source": {"type": "file"}}), TYPE, "messages.1.content.0.source.file_id"),
    (turn({"type": "image", "source": {"type": "url", "url": 5}}), TYPE, "messages.1.content.0.source.url"),
    (turn({"type": "image", "source": {"type": "url", "url": ""}}), INVALID, "messages.1.content.0.source.url"),
    (turn(image(media_type="image/tiff")), INVALID, "messages.1.content.0.source.media_type"),
    (turn(image(data="")), INVALID, "messages.1.content.0.source.data"),
    (turn({"type": "web_search_tool_result"}), UNSUPPORTED, "messages.1.content.0"),
    (turn({"type": "server_tool_use"}, role="assistant"), UNSUPPORTED, "messages.1.content.0"),
    (turn(IMAGE, role="assistant"), INVALID, "messages.1.content.0.type"),
    (turn({**CALL, "input": "{}"}, role="assistant"), TYPE, "messages.1.content.0.input"),
    (turn({**CALL, "id": None}, role="assistant"), TYPE, "messages.1.content.0.id"),
    (turn({**CALL, "name": ""}, role="assistant"), TYPE, "messages.1.content.0.name"),
    (turn({"type": "text", "text": "a"}, CALL, role="assistant"), INVALID, "messages.1"),
    (turn({"type": "thinking", "signature": "s"}, role="assistant"), TYPE, "messages.1.content.0.thinking"),
    (turn({"type": "tool_result", "content": "x"}), TYPE, "messages.1.content.0.tool_use_id"),
    (turn({"type": "tool_result", "tool_use_id": "c", "is_error": "no"}), TYPE, "messages.1.content.0.is_error"),
    (
        turn({"type": "tool_result", "tool_use_id": "c", "content": [IMAGE]}),
        UNSUPPORTED,
        "messages.1.content.0.content.0.source",
    ),
    (
        turn({"type": "tool_result", "tool_use_id": "c", "content": [CALL]}),
        INVALID,
        "messages.1.content.0.content.0.type",
    ),
    (turn({"type": "document"}), TYPE, "messages.1.content.0.source"),
    (document(type="url", url="http://169.254.169.254/"), "invalid_media", "messages.1.content.0.source.url"),
    (document(type="url", url="ftp://a/b"), INVALID, "messages.1.content.0.source.url"),
    (document(type="url", url=5), TYPE, "messages.1.content.0.source.url"),
    (document(type="url", url=""), INVALID, "messages.1.content.0.source.url"),
    (document(type="file", file_id=5), TYPE, "messages.1.content.0.source.file_id"),
    (document(type="file", file_id=""), INVALID, "messages.1.content.0.source.file_id"),
    (document(type="file"), TYPE, "messages.1.content.0.source.file_id"),
    (document(type="blob"), INVALID, "messages.1.content.0.source.type"),
    (document(type="text", data=5), TYPE, "messages.1.content.0.source.data"),
    (document(type="base64", media_type="image/png", data=""), INVALID, "messages.1.content.0.source.media_type"),
    (document(type="base64", media_type="application/pdf", data=5), TYPE, "messages.1.content.0.source.data"),
    (document(type="base64", media_type="application/pdf", data=""), INVALID, "messages.1.content.0.source.data"),
    (
        document(type="base64", media_type="application/pdf", data="x" * 16 * 1024 * 1024),
        INVALID,
        "messages.1.content.0.source",
    ),
    (document(type="content", content=[IMAGE]), INVALID, "messages.1.content.0.source.content.0.type"),
    (turn({"type": "document", "source": PDF, "title": "a\n"}), INVALID, "messages.1.content.0.title"),
    (turn({"type": "document", "source": PDF, "detail": "ultra"}), INVALID, "messages.1.content.0.detail"),
    (turn({"type": "document", "source": PDF, "detail": 5}), INVALID, "messages.1.content.0.detail"),
    (
        turn({"type": "document", "source": PDF, "citations": {"enabled": True}}),
        UNSUPPORTED,
        "messages.1.content.0.citations",
    ),
    (turn({"type": "search_result", "source": "x", "content": []}), MISSING, "messages.1.content.0.title"),
]


@pytest.mark.parametrize(
    ("fields", "code", "param"), FIELDS, ids=[f"{param}-{number}" for number, (_, _, param) in enumerate(FIELDS)]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_invalid_field_is_named_as_sent(api, scripted, fields, code, param, stream):
    response = await post(api, **{"stream": stream, **fields})
    body = response.json()
    assert response.status_code == 400, body
    assert (body["error"]["code"], body["error"]["param"]) == (code, param), body
    assert body["error"]["message"].startswith(param)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]
    assert scripted.requests == []


@pytest.mark.parametrize("name", ["compaction", "mcp_servers", "speed", "context_management"])
async def test_prompt_changing_fields_are_refused_when_counting_tokens(api, scripted, name):
    value = {"edits": [{"type": "clear_tool_uses_20250919"}]} if name == "context_management" else ["x"]
    response = await api.post(COUNT_ROUTE, json={"messages": [TURN], name: value})
    assert (response.status_code, response.json()["error"]["code"]) == (400, UNSUPPORTED)
    assert response.json()["error"]["param"].startswith(name)


async def test_max_tokens_is_required_for_a_message(api, scripted):
    error = (await api.post(ROUTE, json={"messages": [TURN]})).json()["error"]
    assert (error["code"], error["param"]) == (MISSING, "max_tokens")


async def test_a_format_in_two_fields_is_refused(api, scripted):
    form = {"type": "json_schema", "schema": {"type": "object"}}
    error = (await post(api, output_format=form, output_config={"format": form})).json()["error"]
    assert error["param"] == "output_format"


DEEP = {"type": "json_schema", "schema": json.loads('{"properties":{"a":' * 90 + '{"type":"object"}' + "}}" * 90)}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_format": DEEP}, "output_format.schema"),
        ({"output_config": {"format": DEEP}}, "output_config.format.schema"),
    ],
)
async def test_an_invalid_format_is_named_by_its_sent_field(api, scripted, fields, param):
    error = (await post(api, **fields)).json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        ("stop", "stop_sequences"),
        ("thinking_token_budget", "thinking.budget_tokens"),
        ("tools.2.function.parameters.properties", "tools.2.input_schema.properties"),
        ("tools.0.function.name", "tools.0.name"),
        ("response_format.json_schema.schema", "output_config.format.schema"),
        ("messages.0", "system"),
        ("messages.1.content.1.file", "messages.1.content.0.source"),
        ("messages.2.tool_calls.0", "messages.2.content.0"),
        ("messages.2.tool_calls.0.function.name", "messages.2.content.0.name"),
        ("messages.2.tool_calls.0.function.arguments", "messages.2.content.0.input"),
        ("messages.3.tool_call_id", "messages.3.content.0.tool_use_id"),
        ("temperature", "temperature"),
    ],
)
async def test_an_engine_refusal_names_the_sent_field(api, scripted, stream, refused, answered):
    """The system prompt is a message of its own, and two turns of the user are one."""
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, f"{refused} is wrong", refused)]
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
    turns = [
        TURN,
        turn({"type": "document", "source": PDF})["messages"][1],
        {"role": "assistant", "content": [CALL]},
        result,
    ]
    error = (await post(api, system="s", messages=turns, stream=stream)).json()["error"]
    assert (error["param"], error["message"]) == (answered, f"{answered} is wrong")


async def test_a_prompt_too_long_has_the_message_that_clients_search_for(api, scripted):
    answered = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4800 in the messages, "
        "200 in the completion). Please reduce the length of the messages or completion. (context_length_exceeded)"
    )
    scripted.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, answered, "messages", limit=4096, value=4800)]
    error = (await post(api)).json()["error"]
    assert error["message"] == f"prompt is too long: 4800 tokens > 4096 maximum. {answered}"
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")


@pytest.mark.parametrize(
    ("refusal", "status", "kind", "is_repeated"),
    [
        (LimitExceeded(LimitKind.REQUESTS, "slow down", retry_after_s=5, headers={}), 429, "rate_limit_error", "true"),
        (EngineUnavailable(ErrorCode.OVERLOADED, "full"), 503, "overloaded_error", "true"),
        (EngineUnavailable(ErrorCode.MODEL_LOADING, "loading"), 503, "overloaded_error", "true"),
        (EngineUnavailable(ErrorCode.MODEL_LOAD_FAILED, "broken"), 503, "api_error", "false"),
        (EngineFailure(ErrorCode.ENGINE_ERROR, "broken"), 500, "api_error", "false"),
        (RuntimeError("secret"), 500, "api_error", "false"),
    ],
    ids=str,
)
async def test_other_failures_have_types_and_retry_headers(api, scripted, refusal, status, kind, is_repeated):
    scripted.refusal = refusal
    response = await post(api)
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert response.headers["x-should-retry"] == is_repeated
    assert "secret" not in response.text
    assert response.json()["request_id"] == response.headers["request-id"]


@pytest.mark.parametrize("route", [ROUTE, COUNT_ROUTE])
@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"Authorization": ""}, 401, "authentication_error"),
        ({"Authorization": "", "x-api-key": "bad"}, 401, "authentication_error"),
        ({"x-api-key": "bad"}, 401, "authentication_error"),
        ({"Authorization": "Bearer elsewhere"}, 403, "permission_error"),
        ({"Content-Type": "text/plain"}, 400, "invalid_request_error"),
    ],
    ids=str,
)
async def test_invalid_keys_and_headers_are_refused(api, scripted, route, headers, status, kind):
    response = await api.post(
        route, content=json.dumps(message()), headers={"Content-Type": "application/json", **headers}
    )
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)


async def test_the_key_is_read_from_either_header_with_x_api_key_first(api, scripted):
    for headers in ({"Authorization": "", "x-api-key": KEY}, {"Authorization": "Bearer bad", "x-api-key": KEY}, {}):
        scripted.script = list(HELLO)
        response = await api.post(
            ROUTE, json=message(), headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x,y", **headers}
        )
        assert response.status_code == 200, headers


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"max_tokens": NaN}', None),
        (b'{"messages":' + b"[" * 100_000, None),
        (json.dumps(message(messages=[5] * 100_000)).encode(), "messages"),
        (json.dumps(message(messages=[5] * 9_000)).encode(), "messages.0"),
        (json.dumps(turn(*[{"type": "text", "text": ""}] * 10_001) | {"max_tokens": 1}).encode(), "messages.1.content"),
    ],
    ids=range(7),
)
async def test_hostile_bodies_get_short_errors(api, scripted, body, param):
    response = await api.post(ROUTE, content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert len(response.content) <= 16_384
    assert scripted.requests == []


async def test_an_unknown_model_is_not_found(api, scripted):
    response = await post(api, model="claude-9")
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
    assert (await api.post(COUNT_ROUTE, json={"messages": [TURN], "model": "claude-9"})).status_code == 404
