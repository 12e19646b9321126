"""A request with several faults gets the error of the first failing check in the specified order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chat.api.request.schema import ChatCompletionRequest
from chat.generation.completions import LimitExceeded
from chat.generation.limits import LimitKind
from engine.api import EngineUnavailable, ErrorCode
from tests.chat.api.conftest import ROUTE, chat

GOOD = chat()
TOOL = {"type": "function", "function": {"name": "f"}}

FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    ("the salt", {"cache_salt": ""}, "cache_salt", "invalid_value"),
    (
        "continuation",
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
        "invalid_value",
    ),
    ("functions", {"functions": [{"name": "f"}], "tools": [TOOL]}, "functions", "invalid_value"),
    (
        "tool usage",
        {"tools": [TOOL], "tool_choice": {"function": {"name": "g"}}},
        "tool_choice.function.name",
        "invalid_value",
    ),
    (
        "the count of constraints",
        {"structured_outputs": {"regex": "a", "json": {}}},
        "structured_outputs",
        "invalid_value",
    ),
    ("log-probabilities", {"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    ("stream options", {"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ("the shape of the format", {"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ("the first field", {"frequency_penalty": 9}, "frequency_penalty", "invalid_value"),
    ("a later field", {"vllm_xargs": 5}, "vllm_xargs", "invalid_type"),
    ("fields together", {"min_tokens": 9, "max_tokens": 5}, "min_tokens", "invalid_value"),
    ("the model", {"model": "gpt-9"}, "model", "model_not_found"),
    ("the right to templates", {"chat_template": "x"}, "chat_template", "untrusted_chat_template"),
    ("the right to processors", {"logits_processors": ["token_trie"]}, "logits_processors", "unsupported_parameter"),
    ("the connector", {"kv_transfer_params": {"a": 1}}, "kv_transfer_params", "unsupported_parameter"),
    ("options of the processor", {"mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs", "unsupported_parameter"),
    ("options of media", {"media_io_kwargs": {"image": {}}}, "media_io_kwargs", "unsupported_parameter"),
    ("the lowest priority", {"priority": -1}, "priority", "invalid_value"),
    ("the messages", {"messages": [{"role": "user", "content": 5}]}, "messages.0.content", "invalid_type"),
]
NAMES = [name for name, *_ in FAULTS]


def bodies() -> Iterator[tuple[str, dict[str, Any], str, str]]:
    """Yield each fault with all that come after it in one body."""
    for index, (name, _, param, code) in enumerate(FAULTS):
        faults = [fields for _, fields, _, _ in FAULTS[index:]]
        yield name, {field: value for fields in reversed(faults) for field, value in fields.items()}, param, code


@pytest.mark.parametrize("stream", [False, True])
async def test_the_first_fault_in_the_specified_order_is_reported(api, scripted, stream):
    for name, faults, param, code in bodies():
        options = faults if stream is False or "stream_options" in faults else faults | {"stream": True}
        response = await api.post(ROUTE, json=GOOD | options)
        error = response.json()["error"]
        assert (name, error["param"], error["code"]) == (name, param, code)
    assert scripted.requests == []


def test_fields_are_checked_in_the_documented_order():
    """Of two bad fields the first documented one is reported, in any order of the body."""
    fields = list(ChatCompletionRequest().fields)
    assert fields[:4] == ["messages", "model", "frequency_penalty", "logit_bias"]
    assert fields.index("vllm_xargs") < fields.index("thinking_token_budget") < fields.index("store")


LIMIT = LimitExceeded(LimitKind.REQUESTS, "slow down", retry_after_s=4, headers={"x-ratelimit-limit-requests": "5"})
LOADING = EngineUnavailable(ErrorCode.MODEL_LOADING, "loading")


@pytest.mark.parametrize(("refusal", "status"), [(LIMIT, 429), (LOADING, 503)], ids=["limit", "model"])
@pytest.mark.parametrize(
    "fault", [5, {"role": "user", "content": None}, {"author": {"role": "wizard"}, "content": []}], ids=str
)
async def test_limits_and_model_state_precede_message_errors(api, scripted, refusal, status, fault):
    messages = [{"role": "user", "content": "hi"}, fault]
    scripted.refusal = refusal
    response = await api.post(ROUTE, json={"messages": messages})
    assert response.status_code == status
    scripted.refusal, scripted.headers = None, {"x-ratelimit-remaining-requests": "3"}
    response = await api.post(ROUTE, json={"messages": messages})
    assert response.status_code == 400
    assert response.headers["x-ratelimit-remaining-requests"] == "3"
    assert response.json()["error"]["param"].startswith("messages.1")
    assert scripted.refused == [messages, messages], "what was sent is what the limits count"
    assert scripted.requests == [], "and no worker hears of it"
    assert [record["status"] for record in scripted.rejected] == [status, 400]


async def test_body_size_and_content_type_precede_the_content(api, monkeypatch):
    from django.conf import settings

    large = b" " * (settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes + 1)
    wrong = {"Content-Type": "text/plain"}
    assert (await api.post(ROUTE, content=large, headers=wrong | {"Authorization": "Bearer x"})).status_code == 401
    assert (await api.post(ROUTE, content=large, headers=wrong)).status_code == 413
    response = await api.post(ROUTE, content=b"{", headers=wrong)
    assert response.json()["error"]["code"] == "invalid_content_type"
