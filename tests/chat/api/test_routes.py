"""Paths: both prefixes, both slashes, no redirects, JSON errors, CORS, and no sync middleware."""

import asyncio
import json
import threading
from dataclasses import replace
from urllib.parse import unquote

import pytest
from asgiref.sync import iscoroutinefunction
from django.test import RequestFactory, override_settings
from django.urls import ResolverMatch, get_resolver

from chat.access.authentication import AuthFailures
from chat.access.keys import Caller
from chat.api import view
from chat.api.anthropic.dialect import MESSAGES
from chat.api.middleware import ApiHandler, ApiMiddleware, error_described, is_api_path, view_call
from chat.api.openai.dialect import LIGHTCONE
from chat.api.openai.models import model_object
from chat.api.scale.urls import SCALE
from chat.catalog import named_models
from chat.catalog.named_models import NamedModel
from chat.catalog.services import NEUTRAL
from chat.errors import ApiError, Problem, problems_error
from chat.relay.state.workers import ModelCondition
from tests.chat.api.conftest import KEY, MODEL, chat

NO_KEY = {"Authorization": ""}


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/chat/completions", "/v1/chat/completions/", "/chat/completions/"]
)
async def test_completions_answer_on_every_spelling_without_a_redirect(api, path):
    assert (await api.post(path, json=chat())).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/models", "/v1/models/", "/models/"])
async def test_the_list_of_models(api, path):
    """The list has all names that `model` accepts: aliases are separate entries."""
    facts = {
        "object": "model",
        "created": MODEL.created_at,
        "owned_by": "lightcone",
        "state": "ready",
        "max_model_len": 4096,
        "context": None,
        "kind": None,
        "capabilities": ["chat", "completion", "structured_output", "embedding"],
        "format": None,
        "architecture": None,
        "deprecated_at": None,
    }
    defaults = {"default_parameters": {**NEUTRAL, "top_k": 7}}
    listed = [{"id": name, **facts, **defaults} for name in (MODEL.name, "tiny")]
    assert (await api.get(path)).json() == {"object": "list", "data": listed}


async def test_a_model_without_a_worker_is_listed_as_unloaded_with_the_context_it_had(api, monkeypatch):
    """Clients offered such models, as they were listed like any other."""

    async def nobody():
        return {}

    async def models(*, caller=None):
        return [replace(MODEL, max_model_len=2048)]

    monkeypatch.setattr(named_models, "models_live", nobody)
    monkeypatch.setattr(named_models, "models_for_caller_async", models)
    [model, _] = (await api.get("/v1/models")).json()["data"]
    assert (model["state"], model["max_model_len"]) == ("unloaded", 2048)


def test_the_failure_of_a_model_is_shown_only_to_keys_that_read_usage():
    failed = NamedModel(MODEL, MODEL.name, ModelCondition("failed", "/srv/models/x.gguf: not a GGUF file"))
    caller = Caller(key_id=1, public_id="testing0001", org_id=1, project_id=1, tenant="1")
    assert "state_reason" not in model_object(failed, caller)
    operator = replace(caller, rights=frozenset({"inference", "usage_read"}))
    assert model_object(failed, operator)["state_reason"] == "/srv/models/x.gguf: not a GGUF file"


@pytest.mark.parametrize("path", ["/v1/models/org/tiny", "/models/org%2Ftiny", "/v1/models/tiny/", "/models/tiny"])
async def test_one_model_by_name_or_alias_slashes_included(api, path):
    response = await api.get(path)
    assert response.status_code == 200
    assert response.json()["id"] == ("org/tiny" if "org" in path else "tiny")


async def test_an_unknown_model_is_404(api):
    response = await api.get("/v1/models/gpt-9")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert response.json()["error"]["message"].endswith("You can use: org/tiny.")


@pytest.mark.parametrize("name", ["Org/Tiny", "ORG/TINY", "org/tinny"])
async def test_a_misspelt_model_name_gets_a_suggestion(api, name):
    message = (await api.post("/v1/chat/completions", json=chat(model=name))).json()["error"]["message"]
    assert message == (
        f"The model '{name}' does not exist or you do not have access to it. "
        "Did you mean 'org/tiny'? You can use: org/tiny."
    )


async def test_a_404_names_a_bounded_number_of_permitted_models(api, monkeypatch):
    async def models(*, caller):
        assert caller.public_id == "testing0001"
        return [replace(MODEL, name=f"{'m' * 199}{number:03}") for number in range(500)]

    monkeypatch.setattr(named_models, "models_for_caller_async", models)
    response = await api.get("/v1/models/" + "x" * 2_000)
    assert "and 490 more (GET /v1/models)." in response.json()["error"]["message"]
    assert len(response.content) < 16_384


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/chat/completions", "GET, HEAD, OPTIONS, POST"),
        ("DELETE", "/models", "GET, HEAD, OPTIONS"),
        ("PUT", "/health/live", "GET, HEAD, OPTIONS"),
    ],
)
async def test_other_methods_are_405_with_allow(api, method, path, allow):
    response = await api.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == allow


async def test_allowed_methods_are_not_revealed_without_a_key(api):
    for method, path in (("PUT", "/v1/chat/completions"), ("DELETE", "/models")):
        response = await api.request(method, path, headers=NO_KEY)
        assert (response.status_code, response.headers.get("allow")) == (401, None)
    assert (await api.put("/health/live", headers=NO_KEY)).status_code == 405


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html;q=0.5"])
@pytest.mark.parametrize(
    ("method", "path", "whose"),
    [
        ("POST", "/completion", "llama.cpp"),
        ("GET", "/props", "llama.cpp"),
        ("GET", "/metrics", "LIGHTCONE_METRICS_PORT"),
        ("GET", "/computers", ""),
    ],
)
async def test_unknown_paths_are_404_in_json_for_programs(api, accept, method, path, whose):
    """Clients of other APIs showed their users an HTML page as the error."""
    api.headers.pop("Accept")
    response = await api.request(method, path, headers={**NO_KEY, **({"Accept": accept} if accept else {})})
    assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
    error = response.json()["error"]
    assert (error["code"], response.headers["x-request-id"] != "") == ("not_found", True)
    assert f"{method} {path}" in error["message"]
    assert "http://localhost/v1" in error["message"]
    assert whose in error["message"]


async def test_unknown_paths_are_404_pages_for_browsers(api):
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    response = await api.get("/nothing", headers={**NO_KEY, "Accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8")


async def test_head_is_allowed_where_get_is(api):
    assert (await api.head("/v1/models")).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/", "/v1/nothing", "/chat", "/chat/x", "/v4/agents", "/v4/chat-completions", "/v5/agents"),
        *("/responses", "/messages/", "/files/x", "/batches"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "PROPFIND"])
async def test_an_unknown_path_is_401_without_a_key_and_404_with_one_always_json(api, method, path):
    refused = await api.request(method, path, headers=NO_KEY)
    unknown = await api.request(method, path)
    assert (refused.status_code, unknown.status_code) == (401, 404)
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert unknown.json()["error"]["code"] == "not_found"
    is_scale = path.startswith(("/v4", "/v5"))
    assert ("detail" in unknown.json()) == is_scale
    if is_scale:
        assert unknown.json()["detail"] == unknown.json()["message"]


async def test_a_method_of_any_length_gets_a_short_answer(api):
    for path in ("/v1/nothing", "/v4/nothing", "/v1/models"):
        response = await api.request("X" * 8_000, path)
        assert response.status_code in (404, 405)
        assert len(response.content) < 1_000


@pytest.mark.parametrize("dialect", [LIGHTCONE, SCALE, MESSAGES])
@pytest.mark.parametrize("echoed", ['"', "\\", "é", "\u2028"])
def test_an_error_of_many_problems_stays_within_16_kib(dialect, echoed):
    """Each may echo 200 characters that JSON escapes, and Scale's bodies have the message three times."""
    for unknown in ("", "told " * 20, "told " * 30, "told " * 300):
        problems = [Problem("invalid_value", f"messages.{n}.content got {echoed * 200} {unknown}") for n in range(100)]
        assert len(view.error_response(dialect, problems_error(problems)).content) <= 16_384


@pytest.mark.parametrize(
    "path", ["//v1/models", "/V1/models", "/./v1/models", "/v1/../admin/", "/v1/models%0a", "/%76%31/x", "/v1//models"]
)
async def test_malformed_api_paths_reach_no_page_and_no_route(scripted, path):
    from lightcone_site.asgi import http

    sent = []
    received = asyncio.Queue()
    received.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def send(message):
        sent.append(message)

    head = {"type": "http", "method": "GET", "query_string": b"", "headers": [(b"host", b"localhost")], "client": None}
    await http({**head, "path": unquote(path)}, received.get, send)
    assert sent[0]["status"] == 401
    assert json.loads(sent[1]["body"])["error"]["code"] == "invalid_api_key"


async def test_every_api_route_except_health_requires_a_key(api):
    for path in ("/v1/models", "/models/x", "/v1/chat/completions", "/v4/x", "/v1/x"):
        response = await api.request("POST" if "completions" in path else "GET", path, headers=NO_KEY)
        assert response.status_code == 401, path
    assert (await api.get("/health/live", headers=NO_KEY)).json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("state", "status", "is_passing"),
    [
        ("ready", 200, False),
        ("loading", 503, True),
        ("draining", 503, True),
        ("unloaded", 503, True),
        ("failed", 503, False),
    ],
)
async def test_ready_depends_on_a_loaded_model(api, monkeypatch, state, status, is_passing):
    """A model that could never load was reported as `loading` for ever."""

    async def installation_state():
        return state

    monkeypatch.setattr("chat.api.status.installation_state", installation_state)
    response = await api.get("/health/ready", headers=NO_KEY)
    assert (response.status_code, response.json()) == (status, {"status": state})
    assert ("retry-after" in response.headers) == is_passing


# Keys.


async def test_the_key_is_read_from_either_header_with_the_dialects_first(api):
    async def status(**headers):
        return (await api.get("/v1/models", headers=headers)).status_code

    assert await status(Authorization=f"bearer {KEY}") == 200
    del api.headers["Authorization"]
    assert await status(**{"X-Api-Key": KEY}) == 200
    assert await status(**{"X-Api-Key": KEY, "Authorization": "Bearer bad"}) == 401
    assert await status(**{"X-Api-Key": "bad", "Authorization": f"Bearer {KEY}"}) == 200
    assert await status(Authorization=f"Basic {KEY}") == 401
    assert (await api.get(f"/v1/models?api_key={KEY}")).status_code == 401
    assert (await api.get("/v4/x", headers={"X-Api-Key": KEY, "Authorization": "Bearer bad"})).status_code == 404
    assert (await api.get("/v4/x", headers={"X-Api-Key": "bad", "Authorization": f"Bearer {KEY}"})).status_code == 401


async def test_guessing_keys_ends_in_429_except_from_loopback(api, monkeypatch):
    monkeypatch.setattr(view, "_failures", AuthFailures(limit=3, window_s=600))
    forwarded = {"Authorization": "Bearer bad", "X-Forwarded-For": "203.0.113.9"}
    statuses = [(await api.get("/v1/models", headers=forwarded)).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    response = await api.get("/v1/models", headers=forwarded)
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert (await api.get("/v1/models", headers={"Authorization": "Bearer bad"})).status_code == 401
    assert (await api.get("/v1/models")).status_code == 200


async def test_bad_keys_of_others_behind_a_proxy_do_not_block_a_valid_key(api, monkeypatch):
    """Behind an unlisted proxy all clients share an address; twenty bad keys blocked valid ones for ten minutes."""
    monkeypatch.setattr(view, "_failures", AuthFailures(limit=3, window_s=600))
    proxied = {"X-Forwarded-For": "203.0.113.9"}
    statuses = [
        (await api.get("/v1/models", headers={"Authorization": "Bearer bad"} | proxied)).status_code for _ in range(4)
    ]
    assert statuses[-1] == 429
    assert (await api.get("/v1/models", headers=proxied)).status_code == 200


def test_failures_are_forgotten_after_their_window_and_addresses_are_bounded():
    now = [0.0]
    failures = AuthFailures(limit=2, window_s=10, clock=lambda: now[0])
    failures.add("a")
    assert failures.wait_s("a") == 0
    failures.add("a")
    assert failures.wait_s("a") == 10
    now[0] = 11
    assert failures.wait_s("a") == 0
    for number in range(20_000):
        failures.add(str(number))
    assert len(failures._failures) == 10_000


# CORS and the host.


async def test_a_preflight_needs_no_key_and_reflects_header_names(api):
    asked = "authorization, content-type, x-stainless-retry-count"
    headers = {"Origin": "https://a.example", "Access-Control-Request-Headers": asked, **NO_KEY}
    response = await api.options("/v1/chat/completions", headers=headers)
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert response.headers["access-control-allow-headers"] == asked
    assert response.headers["access-control-max-age"] == "600"
    assert "content-length" not in response.headers, "RFC 9110, 8.6: an answer without content has no length"
    assert "access-control-allow-credentials" not in response.headers


async def test_invalid_header_names_are_not_reflected(api):
    response = await api.options("/v1/models", headers={"Access-Control-Request-Headers": "a b; c"})
    assert "access-control-allow-headers" not in response.headers


async def test_answers_and_errors_have_cors_headers(api):
    for headers in ({}, NO_KEY):
        response = await api.get("/v1/models", headers=headers)
        assert response.headers["access-control-allow-origin"] == "*"
        assert "x-ratelimit-remaining-tokens" in response.headers["access-control-expose-headers"]
        assert "x-lightcone-ignored" in response.headers["access-control-expose-headers"]


async def test_only_listed_origins_are_allowed(api):
    with override_settings(LIGHTCONE_CORS_ALLOWED_ORIGINS=["https://a.example"]):
        good = await api.get("/v1/models", headers={"Origin": "https://a.example"})
        other = await api.get("/v1/models", headers={"Origin": "https://b.example"})
    assert good.headers["access-control-allow-origin"] == "https://a.example"
    assert good.headers["vary"] == other.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("host", ["evil.example", "a/?x=", "localhost@evil", ""])
async def test_an_unknown_host_is_400(api, host):
    response = await api.get("/v1/models", headers={"Host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_host")


async def test_a_preflight_allows_delete_only_on_deletable_resources(api, monkeypatch):
    view_ = view.api_view(LIGHTCONE, delete=view.unknown)
    monkeypatch.setattr("chat.api.middleware.resolved", lambda resolver, path: ResolverMatch(view_, (), {}))
    assert (await api.options("/v1/x")).headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"


@pytest.mark.parametrize(
    ("path", "has_detail", "has_origin"), [("/v1/x", False, True), ("/v4/x", True, True), ("/admin/", False, False)]
)
def test_errors_of_the_http_server_have_the_same_shape_and_headers(path, has_detail, has_origin):
    headers, body = error_described(path, "https://a.example", ApiError("request_too_large", "too large"))
    assert json.loads(body)["error"]["code"] == "request_too_large"
    assert ("detail" in json.loads(body)) == has_detail
    assert ("Access-Control-Allow-Origin" in headers) == ("Access-Control-Expose-Headers" in headers) == has_origin
    assert headers["Content-Length"] == str(len(body))
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Request-Id"]
    with override_settings(LIGHTCONE_CORS_ALLOWED_ORIGINS=["https://a.example"]):
        for origin, allowed in (("https://a.example", has_origin), ("https://b.example", False), (None, False)):
            headers, _ = error_described(path, origin, ApiError("request_too_large", "too large"))
            assert ("Access-Control-Allow-Origin" in headers) == allowed


# Headers of clients.


async def test_the_account_header_of_scale_is_bounded_and_grants_nothing(api):
    assert (await api.get("/v4/x", headers={"X-Selected-Account-Id": "a" * 128})).status_code == 404
    response = await api.get("/v4/x", headers={"X-Selected-Account-Id": "a" * 129})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-selected-account-id")
    assert "128" in response.json()["detail"]
    assert (await api.get("/v1/models", headers={"X-Selected-Account-Id": "a" * 129})).status_code == 200
    assert (await api.get("/v4/x", headers={"X-Selected-Account-Id": "a" * 129, **NO_KEY})).status_code == 401


@pytest.mark.parametrize(
    ("headers", "hints"),
    [
        ({}, (0, None)),
        ({"X-Stainless-Retry-Count": "0", "X-Stainless-Read-Timeout": "600"}, (0, 600.0)),
        ({"X-Stainless-Retry-Count": "2", "X-Stainless-Timeout": "60.5"}, (2, 60.5)),
        ({"X-Stainless-Retry-Count": "-1", "X-Stainless-Read-Timeout": "inf"}, (0, None)),
        (
            {"X-Stainless-Retry-Count": "9" * 100, "X-Stainless-Read-Timeout": "9" * 100, "X-Stainless-Timeout": "x"},
            (0, None),
        ),
        ({"X-Stainless-Retry-Count": "²", "X-Stainless-Read-Timeout": "None"}, (0, None)),
    ],
)
def test_client_hint_headers_are_read_or_ignored(headers, hints):
    request = RequestFactory().get("/", headers=headers)
    assert view.client_hints(request) == hints


# Between server and view.


def test_api_routes_pass_through_one_async_function_and_no_sync_middleware():
    handler = ApiHandler()
    assert isinstance(handler.respond, ApiMiddleware)
    assert iscoroutinefunction(handler.respond)
    assert handler.respond.sync_capable is False
    assert handler.respond.get_response is view_call
    resolver = get_resolver()
    for path in (
        "/v1/chat/completions",
        "/models",
        "/v1/models/a/b",
        "/v4/x",
        "/v5/x",
        "/v1/x",
        "/health/live",
        "/health/ready",
    ):
        assert is_api_path(path)
        assert iscoroutinefunction(resolver.resolve(path).func), path
        assert resolver.resolve(path).func.csrf_exempt


def test_pages_are_not_api_paths():
    for path in ("/", "/admin/", "/docs", "/api/schema", "/static/x.js", "/chatter", "/x/v1/models"):
        assert not is_api_path(path)


async def test_a_websocket_on_an_unknown_path_is_refused():
    from lightcone_site.asgi import sockets

    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    await sockets({"type": "websocket", "path": "/ws/nothing"}, receive, send)
    assert sent == [{"type": "websocket.close"}]


async def test_an_api_answer_starts_no_thread(monkeypatch):
    """Django sent its request signals in a thread made and joined for each request."""
    started = []
    start = threading.Thread.start

    def note(thread):
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    sent, is_read = [], []

    async def receive():
        if not is_read:
            is_read.append(True)
            return {"type": "http.request", "body": b""}
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/health/live",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
    }
    await ApiHandler()(scope, receive, send)
    assert sent[0]["status"] == 200
    assert started == []
