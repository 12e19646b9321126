"""Plain HTTP for the tests of habits: what clients of OpenAI's API depend on and send."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx

from tests.served import ServedLightcone

ROUTE = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "Say hello."}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": CITY}},
    {
        "type": "function",
        "function": {
            "name": "clock",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]
NAMED = {"type": "function", "function": {"name": "weather"}}


def calling(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@dataclass
class Streamed:
    """An answer in frames. `chunks`: the JSON of each; `text`: the body as it came."""

    response: httpx.Response
    text: str
    chunks: list[dict[str, Any]]

    def choices(self, index: int = 0) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk["choices"] if choice["index"] == index]

    def calls(self, index: int = 0) -> list[dict[str, Any]]:
        """Return the pieces of calls of one choice."""
        return [call for choice in self.choices(index) for call in choice["delta"].get("tool_calls") or ()]


class Http:
    """A client with one key whose requests are greedy and short by default."""

    def __init__(self, lightcone: ServedLightcone, *, key: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key or lightcone.api_key}"}
        self.model = lightcone.model
        self.client = httpx.Client(base_url=lightcone.base_url, headers=headers, timeout=120)

    def close(self) -> None:
        self.client.close()

    def post(self, *, path: str = ROUTE, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
        body = {"messages": QUESTION, "temperature": 0, "max_tokens": 4, **fields}
        return self.client.post(path, json=body, headers=headers)

    def answer(self, **fields: Any) -> dict[str, Any]:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def choice(self, **fields: Any) -> dict[str, Any]:
        (choice,) = self.answer(**fields)["choices"]
        assert isinstance(choice, dict)
        return choice

    def prompt(self, **fields: Any) -> str:
        """Return the text that the model was given."""
        return str(self.answer(return_prompt_text=True, **{"max_tokens": 1, **fields})["prompt_text"])

    def stream(self, **fields: Any) -> Streamed:
        """A stream, which must end well."""
        response = self.post(stream=True, **fields)
        assert response.status_code == 200, response.text
        *data, done = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
        assert done == "[DONE]"
        return Streamed(response, response.text, [json.loads(frame) for frame in data])

    def error(self, status: int, **fields: Any) -> dict[str, Any]:
        """Return the error of a request that must fail with this status."""
        response = self.post(**fields)
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert isinstance(error, dict)
        return error
