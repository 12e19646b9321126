"""One served model for the tests of bad requests, whose greedy answers do not depend on other requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.served import ServedLightcone

QUESTION = {"messages": [{"role": "user", "content": "Tell me about the sea."}], "temperature": 0}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def client(invariant_lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {invariant_lightcone.api_key}"}
    with httpx.Client(base_url=invariant_lightcone.base_url, headers=headers, timeout=120) as client:
        yield client


def post(client: httpx.Client, body: dict[str, Any]) -> httpx.Response:
    return client.post("/v1/chat/completions", json=body)


def streamed_text(client: httpx.Client, max_tokens: int) -> str:
    """Return the text of a greedy stream, which must end well."""
    response = post(client, QUESTION | {"max_tokens": max_tokens, "stream": True})
    assert response.status_code == 200, response.text
    *frames, done = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    assert done == "[DONE]"
    choices = [choice for frame in frames for choice in json.loads(frame)["choices"]]
    assert choices[-1]["finish_reason"] is not None
    return "".join(choice["delta"].get("content", "") for choice in choices)
