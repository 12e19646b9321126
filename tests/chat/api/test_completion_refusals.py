"""Completions that fail before the first byte: a status and one error shape, streamed or not."""

import json
import threading

import pytest
from django.conf import settings
from django.db import InterfaceError, OperationalError

from chat.access.keys import Caller
from chat.api.answering import pipeline
from chat.api.request.build import generation_request
from chat.api.view import INLINE_BODY_BYTES
from chat.generation.completions import LimitExceeded
from chat.generation.limits import LimitKind
from chat.relay.web.chores import Refusals
from engine.api import EngineFailure, EngineUnavailable, ErrorCode, Failed, Outcome, RequestError
from tests.chat.api.conftest import ADMITTED, HELLO, ROUTE, chat, completed, delta, post

REJECTIONS = [
    (
        RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages"),
        400,
        "context_length_exceeded",
        "messages",
    ),
    (EngineUnavailable(ErrorCode.OVERLOADED, "full"), 503, "overloaded", None),
    (EngineUnavailable(ErrorCode.MODEL_LOADING, "loading"), 503, "model_loading", None),
    (EngineUnavailable(ErrorCode.WORKER_LOST, "lost"), 503, "worker_lost", None),
    (EngineFailure(ErrorCode.ENGINE_ERROR, "broken"), 500, "engine_error", None),
    (EngineFailure(ErrorCode.INTERNAL_ERROR, "secret"), 500, "internal_error", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code", "param"), REJECTIONS, ids=[code for _, _, code, _ in REJECTIONS])
async def test_an_engine_refusal_is_a_plain_http_error_also_for_streams(
    api, scripted, stream, error, status, code, param
):
    scripted.script = [error]
    response = await post(api, stream=stream)
    body = response.json()
    assert (response.status_code, body["error"]["code"], body["error"]["param"]) == (status, code, param)
    assert body["message"] == body["error"]["message"]
    assert "secret" not in response.text
    assert scripted.readers[0].num_left == 1
    if status == 503:
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.headers["x-should-retry"] == "true"
    elif status == 500:
        assert response.headers["x-should-retry"] == "false"


async def test_an_engine_refusal_names_the_sent_field(api, scripted):
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, "max_tokens is wrong", "max_tokens")]
    assert (await post(api, max_completion_tokens=9)).json()["error"]["param"] == "max_completion_tokens"


async def test_a_limit_is_429_with_its_headers_and_one_record(api, scripted):
    headers = {"x-ratelimit-limit-requests": "5"}
    scripted.refusal = LimitExceeded(LimitKind.REQUESTS, "slow down", retry_after_s=400, headers=headers)
    response = await post(api)
    assert response.status_code == 429
    assert response.json()["error"]["type"] == "rate_limit_error"
    assert response.headers["retry-after"] == "60"
    assert response.headers["x-should-retry"] == "true"
    assert response.headers["x-ratelimit-limit-requests"] == "5"
    assert [record["status"] for record in scripted.rejected] == [429]


@pytest.mark.parametrize("stream", [False, True])
async def test_rate_limit_headers_of_the_run_reach_the_client(api, scripted, stream):
    scripted.headers = {"x-ratelimit-remaining-tokens": "7"}
    assert (await post(api, stream=stream)).headers["x-ratelimit-remaining-tokens"] == "7"
    scripted.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages")]
    assert (await post(api, stream=stream)).headers["x-ratelimit-remaining-tokens"] == "7"


@pytest.mark.parametrize(
    ("fields", "status"), [({"temperature": 9}, 400), ({"model": "gpt-9"}, 404), ({"priority": -1}, 400)]
)
async def test_refusals_before_admission_have_rate_limit_headers(api, scripted, fields, status):
    scripted.headers = {"x-ratelimit-remaining-tokens": "7"}
    response = await post(api, **fields)
    assert (response.status_code, response.headers["x-ratelimit-remaining-tokens"]) == (status, "7")


async def test_defects_and_missing_rights_have_rate_limit_headers(api, scripted, monkeypatch):
    scripted.headers = {"x-ratelimit-remaining-tokens": "7"}
    scripted.refusal = RuntimeError("secret")
    response = await post(api)
    assert (response.status_code, response.headers["x-ratelimit-remaining-tokens"]) == (500, "7")
    scripted.refusal, scripted.script = None, [ADMITTED, RuntimeError("secret")]
    response = await post(api)
    assert (response.status_code, response.headers["x-ratelimit-remaining-tokens"]) == (500, "7")

    async def authenticate(**_):
        return Caller(key_id=1, public_id="testing0001", org_id=1, project_id=1, tenant="1", rights=frozenset())

    monkeypatch.setattr("chat.access.authentication.key_authenticate", authenticate)
    response = await post(api)
    assert (response.status_code, response.headers["x-ratelimit-remaining-tokens"]) == (403, "7")
    assert scripted.rejected[-1]["caller"].public_id == "testing0001"


async def test_client_retry_headers_are_logged_without_effect(api, scripted):
    for headers, kept in (
        ({"x-stainless-retry-count": "2", "x-stainless-read-timeout": "600"}, (2, 600.0)),
        ({"x-stainless-retry-count": "many", "x-stainless-timeout": "30.5"}, (0, 30.5)),
        ({"x-stainless-read-timeout": "NaN"}, (0, None)),
    ):
        scripted.script = list(HELLO)
        assert (await api.post(ROUTE, json=chat(), headers=headers)).status_code == 200
        assert (scripted.traces[-1].retry_count, scripted.traces[-1].patience_s) == kept


@pytest.mark.parametrize(
    ("ending", "status", "code"),
    [
        (completed(outcome=Outcome.TIMED_OUT), 408, "inference_timeout"),
        (completed(outcome=Outcome.STOPPED), 500, "engine_error"),
        (Failed(ErrorCode.WORKER_LOST, "The worker was lost."), 503, "worker_lost"),
        (Failed(ErrorCode.LOG_LOST, "gone"), 503, "worker_lost"),
    ],
    ids=str,
)
async def test_an_unfinished_run_gives_an_error(api, scripted, ending, status, code):
    scripted.script = [ADMITTED, delta("x"), ending]
    response = await post(api)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


BODIES = [
    ("not json", b"{", {}, 400, "invalid_json", None),
    ("list", b"[]", {}, 400, "invalid_json", None),
    ("NaN", b'{"messages": [], "temperature": NaN}', {}, 400, "invalid_json", None),
    ("deep", b'{"messages":' + b"[" * 100_000, {}, 400, "invalid_json", None),
    ("many values", b'{"messages": [], "unread": [' + b"[]," * 200_000 + b"1]}", {}, 413, "request_too_large", None),
    ("form", b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "invalid_content_type", None),
    (
        "multipart",
        b"--x",
        {"Content-Type": "multipart/form-data; boundary=" + "x" * 5000},
        400,
        "invalid_content_type",
        None,
    ),
    ("no type", b"{}", {"Content-Type": ""}, 400, "invalid_content_type", None),
    ("gzip", b"{}", {"Content-Encoding": "gzip"}, 400, "invalid_content_type", None),
    ("no messages", b"{}", {}, 400, "missing_required_parameter", "messages"),
    ("unknown model", json.dumps(chat(model="gpt-9")).encode(), {}, 404, "model_not_found", "model"),
    ("model before messages", b'{"messages": [5], "model": "gpt-9"}', {}, 404, "model_not_found", "model"),
    ("bad message", b'{"messages": [5]}', {}, 400, "invalid_type", "messages.0"),
    ("low priority number", json.dumps(chat(priority=-1)).encode(), {}, 400, "invalid_value", "priority"),
    ("no key", json.dumps(chat()).encode(), {"Authorization": ""}, 401, "invalid_api_key", None),
    (
        "wrong key",
        json.dumps(chat()).encode(),
        {"Authorization": "Bearer x' OR pg_sleep(8)--"},
        401,
        "invalid_api_key",
        None,
    ),
    (
        "key elsewhere",
        json.dumps(chat()).encode(),
        {"Authorization": "Bearer elsewhere"},
        403,
        "permission_denied",
        None,
    ),
    ("key before body", b"{", {"Authorization": "Bearer x"}, 401, "invalid_api_key", None),
]


NO_TOKEN = Failed(ErrorCode.INVALID_VALUE, "allowed_token_ids leaves no token", param="allowed_token_ids")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_without_a_possible_first_token_is_a_plain_400(api, scripted, stream):
    scripted.script = [ADMITTED, NO_TOKEN]
    response = await post(api, stream=stream, allowed_token_ids=[7])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "allowed_token_ids")
    assert scripted.readers[0].num_left == 1


@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "param"), [row[1:] for row in BODIES], ids=[row[0] for row in BODIES]
)
async def test_a_bad_request_is_answered_in_the_one_error_shape(api, scripted, body, headers, status, code, param):
    response = await api.post(ROUTE, content=body, headers={"Content-Type": "application/json", **headers})
    parsed = response.json()
    assert response.status_code == status
    assert set(parsed) == {"error", "message"}
    assert set(parsed["error"]) == {"message", "type", "param", "code"}
    assert (parsed["error"]["code"], parsed["error"]["param"]) == (code, param)
    assert len(response.content) <= 16_384
    assert scripted.requests == []
    is_known = status not in (401, 403)
    assert [(record["status"], record["code"]) for record in scripted.rejected] == [(status, code)] * is_known
    if status == 401:
        assert response.headers["www-authenticate"] == 'Bearer realm="lightcone"'


async def test_requests_without_a_valid_key_are_counted_and_not_logged(api, scripted, monkeypatch):
    """Three thousand requests with a wrong key gave three thousand log rows."""
    seen = Refusals()
    monkeypatch.setattr("chat.api.view.refusals", seen)
    for authorization in ("", "Bearer x", "Bearer x", "Bearer elsewhere"):
        await api.post(ROUTE, content=json.dumps(chat()), headers={"Authorization": authorization})
    assert seen.take() == {401: 3, 403: 1}
    assert scripted.rejected == []


async def test_json_content_types_are_accepted(api):
    for content_type in (
        "application/json",
        "application/json; charset=utf-8",
        "application/vnd.api+json",
        "APPLICATION/JSON",
    ):
        response = await api.post(
            ROUTE, content=json.dumps(chat()), headers={"Content-Type": content_type, "Accept": "text/html"}
        )
        assert response.status_code == 200, content_type


async def test_a_body_above_the_inline_size_is_checked_alike(api, scripted):
    response = await post(api, metadata={"k": "v"}, ignored="x" * 3_000_000)
    assert response.status_code == 200
    assert (await post(api, temperature=9, ignored="x" * 100_000)).json()["error"]["param"] == "temperature"


async def test_large_bodies_are_read_without_blocking_other_requests(api, scripted, monkeypatch):
    """Half a million calls in the history blocked the event loop for seconds."""
    places = []

    def build(*arguments, **options):
        places.append(threading.current_thread() is threading.main_thread())
        return generation_request(*arguments, **options)

    monkeypatch.setattr(pipeline, "generation_request", build)
    long = {"role": "user", "content": "x" * INLINE_BODY_BYTES}
    assert (await post(api)).status_code == 200
    scripted.script = list(HELLO)
    assert (await post(api, messages=[long])).status_code == 200
    assert (await post(api, messages=[long, 5])).json()["error"]["param"] == "messages.1"
    assert places == [True, False, False]


async def test_a_body_above_the_limit_is_413_with_any_asgi_server(api, scripted):
    response = await api.post(
        ROUTE,
        content=b" " * (settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes + 10),
        headers={"Content-Type": "application/json"},
    )
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_a_defect_is_a_500_without_details_and_is_recorded_once(api, scripted):
    scripted.refusal = RuntimeError("secret at 0x1234")
    response = await post(api)
    assert response.status_code == 500
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in response.text
    (record,) = scripted.rejected
    assert (record["status"], record["code"], record["caller"].public_id) == (500, "internal_error", "testing0001")


async def test_a_defect_before_authentication_is_recorded(api, scripted, monkeypatch):
    async def fail(**_):
        raise RuntimeError("the database is away")

    monkeypatch.setattr("chat.access.authentication.key_authenticate", fail)
    response = await post(api)
    assert response.status_code == 500
    (record,) = scripted.rejected
    assert (record["status"], record["caller"]) == (500, None)


@pytest.mark.parametrize(
    "away", [OperationalError("the connection is closed"), InterfaceError("connection already closed")]
)
async def test_a_database_failure_is_a_retryable_503(api, scripted, away):
    """After a restart of PostgreSQL each dead pool connection gave a request a 500, which clients never retry."""
    scripted.refusal = away
    response = await post(api)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    assert (response.headers["x-should-retry"], response.headers["Retry-After"]) == ("true", "1")
    (record,) = scripted.rejected
    assert (record["status"], record["code"]) == (503, "overloaded")
