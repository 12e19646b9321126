"""Habits of clients that read answers and errors, items 21 to 29."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai.types.chat
import pytest

from tests.contract.habits import NAMED, QUESTION, ROUTE, TOOLS, Http

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def http(lightcone: Any) -> Iterator[Http]:
    made = Http(lightcone)
    yield made
    made.close()


def test_item_21_the_answer_is_the_exact_object(http):
    response = http.post(n=2, temperature=1)
    body = response.json()
    assert body["id"] == f"chatcmpl-{response.headers['x-request-id']}"
    assert (body["object"], body["model"]) == ("chat.completion", http.model)
    assert type(body["created"]) is int
    assert isinstance(body["system_fingerprint"], str)
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    for choice in body["choices"]:
        assert type(choice["index"]) is int
        assert choice["logprobs"] is None
        message = choice["message"]
        assert (message["role"], message["refusal"]) == ("assistant", None)
        assert "tool_calls" not in message
        assert isinstance(message["content"], str)
    usage = body["usage"]
    counts = [
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["total_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    ]
    counts += list(usage["completion_tokens_details"].values())
    assert all(type(count) is int for count in counts)
    assert "error" not in body


def test_item_21_arguments_are_a_string_and_content_is_null_beside_calls(http):
    message = http.choice(tools=TOOLS, tool_choice=NAMED, max_tokens=40)["message"]
    (call,) = message["tool_calls"]
    assert (call["type"], call["function"]["name"], message["content"]) == ("function", "weather", None)
    assert isinstance(call["function"]["arguments"], str)
    assert isinstance(call["id"], str)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ROUTE),
        ("GET", ROUTE),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/none"),
        ("GET", "/v1/nothing"),
        ("GET", "/health/live"),
    ],
)
def test_item_22_every_json_body_says_that_it_is_json(http, method, path):
    for headers in ({}, {"Authorization": "Bearer bad"}, {"Accept": "text/html"}):
        body = {"messages": QUESTION, "max_tokens": 1} if method == "POST" else None
        response = http.client.request(method, path, json=body, headers=headers)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        response.json()


def test_item_23_extra_keys_are_tolerated(http):
    body = http.answer(return_token_ids=True, prompt_logprobs=0)
    assert {"prompt_token_ids", "prompt_logprobs", "kv_transfer_params"} <= set(body)
    parsed = openai.types.chat.ChatCompletion.model_validate(body)
    assert parsed.choices[0].message.content


def test_item_24_an_overflow_error_has_the_words_that_clients_look_for(http):
    messages = [{"role": "user", "content": "word " * 20_000}]
    for max_tokens, counted in (
        (200, r"(\d+) in the messages, 200 in the completion"),
        (None, r"(\d+) in the messages"),
    ):
        error = http.error(400, messages=messages, max_tokens=max_tokens)
        assert (error["type"], error["code"], error["param"]) == (
            "invalid_request_error",
            "context_length_exceeded",
            "messages",
        )
        found = re.fullmatch(
            r"This model's maximum context length is (\d+) tokens\. However, you requested (\d+) tokens \("
            + counted
            + r"\)\. "
            r"Please reduce the length of the messages or completion\. \(context_length_exceeded\)",
            error["message"],
        )
        assert found, error["message"]
        assert int(found[2]) == int(found[3]) + (max_tokens or 0)


JSON = {"Content-Type": "application/json"}
FAILURES: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("a field", {"json": {"messages": QUESTION, "temperature": 9}}, 400, "invalid_request_error", "invalid_value"),
    ("a type", {"json": {"messages": 5}}, 400, "invalid_request_error", "invalid_type"),
    ("nothing", {"json": {}}, 400, "invalid_request_error", "missing_required_parameter"),
    (
        "a feature",
        {"json": {"messages": QUESTION, "modalities": ["text", "audio"]}},
        400,
        "invalid_request_error",
        "unsupported_parameter",
    ),
    (
        "a template",
        {"json": {"messages": QUESTION, "chat_template": "x"}},
        400,
        "invalid_request_error",
        "untrusted_chat_template",
    ),
    ("no JSON", {"content": b"{", "headers": JSON}, 400, "invalid_request_error", "invalid_json"),
    ("a form", {"data": {"a": "1"}}, 400, "invalid_request_error", "invalid_content_type"),
    (
        "a key",
        {"json": {}, "headers": {"Authorization": "Bearer bad"}},
        401,
        "invalid_request_error",
        "invalid_api_key",
    ),
    ("no key", {"json": {}, "headers": {"Authorization": ""}}, 401, "invalid_request_error", "invalid_api_key"),
    ("a model", {"json": {"messages": QUESTION, "model": "gpt-9"}}, 404, "invalid_request_error", "model_not_found"),
    (
        "a size",
        {"content": b" " * (33 << 20), "headers": JSON},
        413,
        "invalid_request_error",
        "request_too_large",
    ),
]


@pytest.mark.parametrize("route", [ROUTE, "/v4/beta/chat/completions"])
@pytest.mark.parametrize(
    ("sent", "status", "type_", "code"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES]
)
def test_item_25_and_26_every_failure_has_one_envelope_and_its_own_status(http, route, sent, status, type_, code):
    if route != ROUTE and sent.get("json"):
        sent = sent | {"json": {"model": http.model, **sent["json"]}}
    response = http.client.post(route, **sent)
    body = response.json()
    assert response.status_code == status, body
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"]) == (type_, code)
    assert body["message"] == body["error"]["message"]
    assert len(response.content) <= 16_384
    assert ("detail" in body) == (route != ROUTE)
    assert response.headers["x-request-id"]
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("PUT", ROUTE, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/models/none", 404, "model_not_found"),
        ("FOO", "/v1/nothing", 404, "not_found"),
        ("GET", "/chat", 404, "not_found"),
        ("GET", "/v5/nothing", 404, "not_found"),
        ("GET", "/v1/%ff", 404, "not_found"),
    ],
)
def test_item_25_the_envelope_holds_for_routes_and_methods_too(http, method, path, status, code):
    response = http.client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["message"] == response.json()["error"]["message"]
    assert ("allow" in response.headers) == (status == 405)
    assert http.client.request(method, path, headers={"Authorization": ""}).status_code == 401


def test_item_26_a_good_key_without_the_right_is_403(lightcone):
    http = Http(lightcone, key=lightcone.make_key(rights=[]))
    error = http.error(403)
    assert (error["type"], error["code"]) == ("permission_error", "permission_denied")
    http.close()


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/models/"])
def test_item_27_models_are_listed_as_openai_does(http, path):
    body = http.client.get(path).json()
    assert body["object"] == "list"
    (model,) = [model for model in body["data"] if model["id"] == http.model]
    assert (model["object"], type(model["created"]), type(model["owned_by"])) == ("model", int, str)
    assert http.client.get(f"{path.rstrip('/')}/{http.model}").json() == model


def test_item_27_names_may_have_slashes(http):
    for path in ("/v1/models/org/none", "/v1/models/org%2Fnone"):
        response = http.client.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
        assert "org/none" in response.json()["message"]


def test_item_28_pages_of_any_origin_may_call_the_api(http):
    asked = "authorization, content-type, x-stainless-arch, x-stainless-retry-count"
    preflight = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": asked,
    }
    response = httpx.options(f"{http.client.base_url}".rstrip("/") + ROUTE, headers=preflight)
    assert (response.status_code, response.content) == (204, b"")
    lines = {
        name: value
        for name, value in response.headers.items()
        if name.startswith("access-control-") and "expose" not in name
    }
    assert lines == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "GET, POST, OPTIONS",
        "access-control-allow-headers": asked,
        "access-control-max-age": "600",
    }
    origin = {"Origin": "https://a.example"}
    for answer in (
        http.post(headers=origin),
        http.post(headers=origin, stream=True),
        http.post(headers=origin, temperature=9),
    ):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        rates = {
            f"x-ratelimit-{word}-{kind}" for word in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
        }
        of_models = {"x-lightcone-model", "x-lightcone-fallback", "deprecation"}
        known = {"x-request-id", "retry-after", "x-should-retry", "x-lightcone-ignored"} | of_models
        assert set(exposed) == known | rates
    for page in ("/docs", "/api/schema", "/sign-in", "/admin/login/"):
        assert "access-control-allow-origin" not in http.client.get(page, headers=origin).headers


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_item_29_every_spelling_of_the_base_url_reaches_a_route(http, base, slash):
    path = base.rstrip("/") + "/chat/completions" + slash
    response = http.post(path=path)
    assert (response.status_code, response.history) == (200, [])
    assert response.json()["choices"][0]["message"]["content"]
