"""A server with anonymous loopback access serves the plainest request, and local programs alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROUTE = "/v1/chat/completions"
EXAMPLE = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello, who are you?"},
    ],
    "temperature": 0.7,
    "max_tokens": 150,
}


@pytest.fixture(scope="module")
def open_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedLightcone, httpx.Client]]:
    served = ServedLightcone(
        tmp_path_factory.mktemp("anonymous"), environment={"LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK": "1"}
    )
    with served.running(), httpx.Client(base_url=served.base_url, timeout=120) as client:
        yield served, client


def status(client: httpx.Client, **headers: str) -> int:
    return client.get("/v1/models", headers=headers).status_code


def test_the_plainest_request_works_without_a_key(open_client: Any) -> None:
    """The usual example of such servers: two headers and a body."""
    served, client = open_client
    response = client.post(ROUTE, json=EXAMPLE | {"model": served.model}, headers={"Host": f"localhost:{served.port}"})
    body = response.json()
    assert response.status_code == 200, body
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"]
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


def test_a_key_of_our_form_must_be_valid_and_other_keys_are_ignored(open_client: Any) -> None:
    served, client = open_client
    assert status(client, Authorization=f"Bearer {served.api_key}") == 200
    assert status(client, Authorization=f"Bearer {served.api_key[:-1]}") == 401
    assert status(client, **{"X-Api-Key": f"{served.api_key}0"}) == 401
    assert status(client, Authorization="Bearer ollama") == 200
    assert status(client, **{"X-Api-Key": "not-needed", "anthropic-version": "2023-06-01"}) == 200


def test_nothing_but_a_program_of_this_machine_gets_in(open_client: Any) -> None:
    served, client = open_client
    assert status(client) == 200
    for header in ("X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-Ip", "Cf-Connecting-Ip"):
        assert status(client, **{header: "127.0.0.1"}) == 401
    assert status(client, Host="evil.example") == 400
    assert status(client, Host=f"127.0.0.1.evil.example:{served.port}") == 400
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        assert status(client, Origin=origin) == 401
    assert status(client, Origin=served.base_url) == 200


def test_no_page_of_another_origin_may_read_anything(open_client: Any) -> None:
    _, client = open_client
    origin = {"Origin": "https://evil.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    for response in (client.options(ROUTE, headers=origin | asked), client.get("/v1/models", headers=origin)):
        assert "access-control-allow-origin" not in response.headers
