"""Behaviour of web frameworks and headers that surprises clients of an API, seen from outside."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.habits import QUESTION, ROUTE, Http

pytestmark = pytest.mark.live

SCALE = "/v4/beta/chat/completions"
LIMITS = {f"x-ratelimit-{word}-{kind}" for word in ("limit", "remaining", "reset") for kind in ("requests", "tokens")}


@pytest.fixture(scope="module")
def http(lightcone: Any) -> Iterator[Http]:
    made = Http(lightcone)
    yield made
    made.close()


@pytest.fixture(scope="module")
def bare(lightcone: Any) -> Iterator[httpx.Client]:
    """A client that sends no key by itself."""
    with httpx.Client(base_url=lightcone.base_url, timeout=120) as client:
        yield client


BODY = {"messages": QUESTION, "max_tokens": 2, "temperature": 0}


def test_traps_credentials_that_are_missing_are_401_and_say_how_to_bring_them(bare):
    for method, path in (
        ("POST", ROUTE),
        ("POST", SCALE),
        ("GET", "/v1/models"),
        ("GET", "/v4/x"),
        ("GET", ROUTE),
        ("POST", "/chat/x"),
    ):
        for headers in (
            {},
            {"Authorization": "Bearer x' OR 1=1--"},
            {"Authorization": "Basic eDp5"},
            {"X-Api-Key": b"\xe9"},
        ):
            response = bare.request(method, path, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == 'Bearer realm="lightcone"'
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["x-request-id"]


def test_traps_the_dialects_own_header_decides_alone(bare, lightcone):
    good, bearer = lightcone.api_key, f"Bearer {lightcone.api_key}"
    assert bare.post(ROUTE, json=BODY, headers={"Authorization": bearer, "X-Api-Key": "bad"}).status_code == 200
    assert bare.post(ROUTE, json=BODY, headers={"Authorization": "Bearer bad", "X-Api-Key": good}).status_code == 401
    assert bare.post(ROUTE, json=BODY, headers={"X-Api-Key": good}).status_code == 200
    scale = BODY | {"model": lightcone.model}
    assert bare.post(SCALE, json=scale, headers={"Authorization": "Bearer bad", "X-Api-Key": good}).status_code == 200
    assert bare.post(SCALE, json=scale, headers={"Authorization": bearer, "X-Api-Key": "bad"}).status_code == 401
    assert bare.post(SCALE, json=scale, headers={"Authorization": bearer}).status_code == 200
    assert bare.post(f"{ROUTE}?api_key={good}", json=BODY).status_code == 401


def test_traps_accept_is_ignored(http):
    for accept in ("text/html", "application/xml", "text/event-stream", "image/*;q=0.5", "nonsense"):
        assert http.post(headers={"Accept": accept}).headers["content-type"] == "application/json"
    assert (
        http.post(stream=True, headers={"Accept": "application/json"})
        .headers["content-type"]
        .startswith("text/event-stream")
    )


def test_traps_the_type_of_the_body_is_json_or_a_clear_400(http):
    content = b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}'
    for good in ("application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"):
        assert http.client.post(ROUTE, content=content, headers={"Content-Type": good}).status_code == 200
    for bad in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"):
        response = http.client.post(ROUTE, content=content, headers={"Content-Type": bad})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_content_type")
        assert "application/json" in response.json()["message"]
    assert (
        http.client.post(
            ROUTE, content=content, headers={"Content-Type": "application/json", "Content-Encoding": "identity"}
        ).status_code
        == 200
    )
    response = http.client.post(
        ROUTE, content=content, headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_content_type")


def test_traps_a_slash_at_the_end_changes_nothing(http):
    for path in (ROUTE, "/chat/completions", SCALE):
        response = http.post(path=path + "/", model=http.model)
        assert (response.status_code, response.history) == (200, [])
    for path in ("/v1/models", "/models", f"/v1/models/{http.model}", "/health/live", "/health/ready"):
        for spelled in (path, path + "/"):
            response = http.client.get(spelled)
            assert (response.status_code, response.history) == (200, [])
            head = http.client.head(spelled)
            assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "application/json")


def test_traps_nothing_is_compressed(http):
    """Compression would delay the tokens of a stream, and lengths of compressed secrets leak them."""
    for fields in ({}, {"stream": True}):
        response = http.post(headers={"Accept-Encoding": "gzip, deflate, br"}, **fields)
        assert "content-encoding" not in response.headers
    assert "content-encoding" not in http.client.get("/v1/models", headers={"Accept-Encoding": "gzip"}).headers


def test_traps_cookies_of_a_session_neither_authenticate_nor_ask_for_a_token(bare, lightcone):
    page = bare.get("/sign-in")
    cookies = {"lightcone_session": "x" * 32, **dict(page.cookies)}
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    assert bare.post(ROUTE, json=BODY, headers=headers).status_code == 401
    assert (
        bare.post(ROUTE, json=BODY, headers=headers | {"Authorization": f"Bearer {lightcone.api_key}"}).status_code
        == 200
    )


def test_traps_a_prompt_of_megabytes_is_refused_for_its_tokens_not_for_its_bytes(http):
    response = http.post(messages=[{"role": "user", "content": "word " * 800_000}])
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    "target",
    [
        "/v1/%ff",
        "/v1/models/%00",
        "//v1//models",
        "/v1/chat/completions/../models",
        "/V1/models",
        "/v1/models%0d%0aX: 1",
    ],
)
def test_traps_odd_targets_get_json_and_no_page(lightcone, target):
    with socket.create_connection(("127.0.0.1", lightcone.port), timeout=30) as client:
        head = (
            f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {lightcone.api_key}\r\nConnection: "
            "close\r\n\r\n"
        )
        client.sendall(head.encode())
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    status, content = int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]
    assert status in (400, 404)
    assert b"application/json" in answer
    assert b"<html" not in content.lower()


def test_traps_unknown_methods_are_answered_in_json(http, bare):
    for method in ("FOO", "TRACE", "PATCH"):
        response = http.client.request(method, ROUTE)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
        assert bare.request(method, "/v1/nothing").status_code == 401


# Limits of a key, and retry headers.


def test_headers_every_answer_of_a_limited_key_names_its_limits(lightcone):
    http = Http(lightcone, key=lightcone.make_key(requests_per_minute=30, tokens_per_minute=100_000))
    answers = [
        http.post(),
        http.post(stream=True),
        http.post(temperature=9),
        http.post(model="gpt-9"),
        http.post(messages=[{"role": "user", "content": "word " * 20_000}], max_tokens=None),
        http.post(messages=[5]),
        http.client.post(ROUTE, content=b"{", headers={"Content-Type": "application/json"}),
        http.client.post(ROUTE, content=b"{", headers={"Content-Type": "text/plain"}),
        http.post(path=SCALE, model=http.model),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 400, 404, 400, 400, 400, 400, 200]
    for answer in answers:
        assert set(answer.headers) >= LIMITS
        assert answer.headers["x-ratelimit-limit-requests"] == "30"
        assert answer.headers["x-ratelimit-limit-tokens"] == "100000"
        assert 0 <= int(answer.headers["x-ratelimit-remaining-requests"]) <= 30
        assert 0 <= int(answer.headers["x-ratelimit-remaining-tokens"]) <= 100_000
        assert answer.headers["x-ratelimit-reset-requests"].endswith("s")
        assert "retry-after" not in answer.headers
    http.close()
    assert not LIMITS & set(Http(lightcone).post().headers), "a key without limits has none to tell of"


COMPUTING = {
    ROUTE: {"messages": QUESTION},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": QUESTION, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": QUESTION},
    "/v1/embeddings": {"input": "Hello"},
    "/tokenize": {"prompt": "Hello"},
    "/v1/chat/completions/render": {"messages": QUESTION},
    SCALE: {"messages": QUESTION},
    "/v4/beta/completions": {"prompt": "Hello"},
    "/v5/chat/completions": {"messages": QUESTION},
}


def test_headers_the_limits_of_a_key_hold_on_every_route_that_computes(lightcone):
    http = Http(lightcone, key=lightcone.make_key(requests_per_minute=1))
    assert http.post().status_code == 200
    for path, body in COMPUTING.items():
        for fields in (body, {**body, "model": "gpt-9"}):
            response = http.client.post(path, json={"model": http.model, **fields})
            assert response.status_code == (429 if fields is body else 404), (path, response.text)
            assert {name for name in LIMITS if name.endswith("requests")} <= set(response.headers)
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer bad"}):
            assert http.client.post(path, json=body, headers=headers).status_code == 401
    http.close()


def test_headers_a_429_of_an_exhausted_key_says_when_to_retry(lightcone):
    http = Http(lightcone, key=lightcone.make_key(requests_per_minute=1))
    assert http.post().status_code == 200
    for fields in ({}, {"stream": True}, {"path": SCALE, "model": http.model}):
        response = http.post(**fields)
        assert (response.status_code, response.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.headers["x-should-retry"] == "true"
        assert response.headers["x-ratelimit-remaining-requests"] == "0"
        assert "retry-after-ms" not in response.headers
    http.close()


def test_headers_the_request_id_is_the_clients_where_it_is_clean(http):
    for sent, is_kept in (("my-id:1.2_3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("a/b", False)):
        response = http.post(headers={"X-Request-Id": sent}, request_id="from-body")
        assert (response.headers["x-request-id"] == sent) == is_kept
        assert response.json()["id"] == f"chatcmpl-{response.headers['x-request-id']}"
    assert http.post(request_id="from-body").headers["x-request-id"] == "from-body"
    for path in ("/v1/models", "/v1/nothing", "/health/live"):
        assert http.client.get(path, headers={"X-Request-Id": "mine"}).headers["x-request-id"] == "mine"


def test_headers_of_scales_clients_open_nothing_and_are_kept_nowhere(http, lightcone):
    secret = "sk-proj-CanaryCanaryCanaryCanary"  # noqa: S105
    fields = {"path": "/v5/chat/completions", "model": http.model}
    headers = {"x-selected-account-id": "a" * 128, "x-openai-api-key": secret}
    assert http.post(headers=headers, **fields).status_code == 200
    response = http.post(headers={"x-selected-account-id": "a" * 129}, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "x-selected-account-id")
    http.post(headers=headers, temperature=9, **fields)
    assert secret not in lightcone.logs()
    for path in lightcone.data_dir.glob("*.sqlite3*"):
        assert secret.encode() not in path.read_bytes()


def test_headers_of_libraries_are_no_reason_to_fail(http):
    for count, timeout in (("0", "600"), ("2", "0.5"), ("-1", "NaN"), ("x" * 500, "9" * 500), ("", "")):
        headers = {
            "x-stainless-retry-count": count,
            "x-stainless-read-timeout": timeout,
            "X-Stainless-Timeout": timeout,
        }
        assert http.post(headers=headers).status_code == 200
