"""One served model for all tests of request fields, and a client that asks greedily and briefly by default."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from tests.served import ServedLightcone

QUESTION = [{"role": "user", "content": "Tell me about the sea."}]
COUNTING = [
    {"role": role, "content": text}
    for number in ("1", "2")
    for role, text in (("user", f"Say {number}."), ("assistant", f"{number}."))
] + [{"role": "user", "content": "Say 3."}]
"""A conversation whose next answer is short and ends by itself: "3."."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.slow)


class Asker:
    """A client with one key. Fields given as None are left out."""

    def __init__(self, served: ServedLightcone, key: str) -> None:
        self.served = served
        self._client = httpx.Client(base_url=served.api_url, headers={"Authorization": f"Bearer {key}"}, timeout=120)

    def close(self) -> None:
        self._client.close()

    def post(self, **fields: Any) -> httpx.Response:
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 8, **fields}
        return self._client.post(
            "/chat/completions", json={name: value for name, value in body.items() if value is not None}
        )

    def listed(self) -> dict[str, Any]:
        """Return the served model as the list of models has it."""
        (model,) = self._client.get("/models").json()["data"]
        assert isinstance(model, dict)
        return model

    def rendered(self, **fields: Any) -> dict[str, Any]:
        """Return the answer of /chat/completions/render to a request."""
        body: dict[str, Any] = self._client.post(
            "/chat/completions/render", json={"messages": QUESTION, **fields}
        ).json()
        return body

    def answer(self, **fields: Any) -> dict[str, Any]:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def choice(self, **fields: Any) -> dict[str, Any]:
        (choice,) = self.answer(**fields)["choices"]
        assert isinstance(choice, dict)
        return choice

    def message(self, **fields: Any) -> dict[str, Any]:
        message: dict[str, Any] = self.choice(**fields)["message"]
        return message

    def text(self, **fields: Any) -> str:
        return str(self.message(**fields)["content"])

    def token_ids(self, **fields: Any) -> list[int]:
        ids: list[int] = self.choice(return_token_ids=True, **fields)["token_ids"]
        return ids

    def prompt(self, **fields: Any) -> str:
        """Return the rendered prompt of a request."""
        return str(self.answer(return_prompt_text=True, **{"max_tokens": 1, **fields})["prompt_text"])

    def logprobs(self, **fields: Any) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.choice(logprobs=True, **fields)["logprobs"]["content"]
        return entries

    def chunks(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the chunks of a stream, which must end well."""
        response = self.post(stream=True, **fields)
        assert response.status_code == 200, response.text
        *data, done = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
        assert done == "[DONE]"
        return [json.loads(frame) for frame in data]

    def refusal(self, **fields: Any) -> tuple[str, str]:
        """Return (param, code) of the 400."""
        response = self.post(**fields)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        return error["param"], error["code"]

    def with_rights(self, *rights: str, **policy: Any) -> Asker:
        """Return a copy with a new key."""
        return Asker(self.served, self.served.make_key(rights=("inference", *rights), **policy))

    def record(self, request_id: str) -> dict[str, Any]:
        """Return the row of a request in the log, once it is written."""
        rows: list[dict[str, Any]] = []

        def is_written() -> bool:
            with closing(sqlite3.connect(self.served.data_dir / "lightcone.sqlite3")) as database:
                database.row_factory = sqlite3.Row
                rows[:] = map(
                    dict, database.execute("SELECT * FROM chat_requestlog WHERE client_request_id = ?", (request_id,))
                )
            return bool(rows)

        self.served.wait_for(is_written, timeout_s=30, what="the record of a request")
        return rows[0]


def joined(chunks: list[dict[str, Any]], name: str = "content") -> str:
    """A text of the only choice of a stream."""
    return "".join(choice["delta"].get(name) or "" for chunk in chunks for choice in chunk["choices"])


@contextmanager
def asker(served: ServedLightcone) -> Iterator[Asker]:
    client = Asker(served, served.api_key)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="session")
def ask(invariant_lightcone: ServedLightcone) -> Iterator[Asker]:
    with asker(invariant_lightcone) as client:
        yield client
