"""Ollama's routes against a served model: the same answers as by the other dialects, line by line or whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

SEA = [{"role": "user", "content": "Tell me about the sea."}]
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(invariant_lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    served = invariant_lightcone
    headers = {"Authorization": f"Bearer {served.api_key}"}
    with httpx.Client(base_url=served.base_url, headers=headers, timeout=120) as client:
        yield client


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"temperature": 0}, {"temperature": 0}),
        ({"temperature": 1, "seed": 7}, {"temperature": 1, "seed": 7}),
        ({"temperature": 0, "stop": [" of"]}, {"temperature": 0, "stop": [" of"]}),
        ({"temperature": 0, "repeat_penalty": 1.5}, {"temperature": 0, "repetition_penalty": 1.5}),
        (
            {"temperature": 1, "seed": 3, "top_k": 5, "min_p": 0.1},
            {"temperature": 1, "seed": 3, "top_k": 5, "min_p": 0.1},
        ),
    ],
)
def test_a_chat_has_the_text_and_the_counts_of_a_chat_completion(client, options, fields):
    usual = post(client, "/v1/chat/completions", messages=SEA, max_tokens=12, **fields)
    body = {"messages": SEA, "options": {"num_predict": 12, **options}}
    whole = post(client, "/api/chat", stream=False, **body)
    [choice] = usual["choices"]
    assert whole["message"]["content"] == choice["message"]["content"]
    assert whole["done_reason"] == choice["finish_reason"]
    assert whole["prompt_eval_count"] == usual["usage"]["prompt_tokens"]
    assert whole["eval_count"] == usual["usage"]["completion_tokens"]
    *pieces, last = lines(client.post("/api/chat", json=body))
    assert "".join(piece["message"]["content"] for piece in pieces) == whole["message"]["content"]
    assert (last["done_reason"], last["eval_count"]) == (whole["done_reason"], whole["eval_count"])
    assert 0 < last["prompt_eval_duration"] + last["eval_duration"] <= last["total_duration"]


def test_log_probabilities_are_those_of_a_chat_completion(client):
    usual = post(
        client, "/v1/chat/completions", messages=SEA, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
    )
    options = {"num_predict": 4, "temperature": 0}
    body = post(client, "/api/chat", messages=SEA, options=options, logprobs=True, top_logprobs=2, stream=False)
    assert body["logprobs"] == usual["choices"][0]["logprobs"]["content"]


def test_a_format_holds_the_text_to_its_schema(client):
    body = post(client, "/api/chat", messages=SEA, format=COLOUR, options={"num_predict": 24}, stream=False)
    assert json.loads(body["message"]["content"])["colour"] in ("red", "blue")


def test_a_raw_prompt_is_a_text_completion(client):
    usual = post(client, "/v1/completions", prompt="The sea is", max_tokens=8, temperature=0)
    options = {"num_predict": 8, "temperature": 0}
    raw = post(client, "/api/generate", prompt="The sea is", raw=True, options=options, stream=False)
    assert raw["response"] == usual["choices"][0]["text"]
    assert raw["prompt_eval_count"] == usual["usage"]["prompt_tokens"]


def test_a_prompt_with_a_system_prompt_is_a_chat(client):
    messages = [{"role": "system", "content": "You are a pirate."}, *SEA]
    usual = post(client, "/v1/chat/completions", messages=messages, max_tokens=8, temperature=0)
    options = {"num_predict": 8, "temperature": 0}
    fields = {"prompt": SEA[0]["content"], "system": "You are a pirate.", "options": options, "stream": False}
    assert post(client, "/api/generate", **fields)["response"] == usual["choices"][0]["message"]["content"]


def test_vectors_are_those_of_embeddings(client):
    usual = [entry["embedding"] for entry in post(client, "/v1/embeddings", input=["the sea", "a ship"])["data"]]
    body = post(client, "/api/embed", input=["the sea", "a ship"])
    assert body["embeddings"] == usual
    assert post(client, "/api/embeddings", prompt="the sea")["embedding"] == usual[0]
    assert 0 < body["load_duration"] <= body["total_duration"]


def test_an_input_beyond_the_context_is_cut_or_refused(client):
    words = "sea " * 4000
    cut = post(client, "/api/embed", input=words)
    assert cut["prompt_eval_count"] < 2048
    refused = client.post("/api/embed", json={"input": words, "truncate": False})
    assert (refused.status_code, refused.json()["code"]) == (400, "context_length_exceeded")


def test_a_context_that_is_not_served_is_refused(client, invariant_lightcone):
    fields = {"messages": SEA, "stream": False}
    refused = client.post("/api/chat", json={**fields, "options": {"num_ctx": 4096}})
    assert (refused.status_code, refused.json()["param"]) == (400, "options.num_ctx")
    assert "at most 2048" in refused.json()["error"]
    assert post(client, "/api/chat", **fields, options={"num_ctx": 2048, "num_predict": 2})["eval_count"] == 2


def test_without_a_prompt_the_model_is_only_waited_for(client):
    for path in ("/api/chat", "/api/generate"):
        assert post(client, path)["done_reason"] == "load"
    assert post(client, "/api/embed", input=[])["embeddings"] == []


def test_the_served_model_is_listed_shown_and_running(client, invariant_lightcone):
    name = invariant_lightcone.model
    [listed] = models_of(client, "/api/tags")
    [running] = models_of(client, "/api/ps")
    assert listed["name"] == running["name"] == name
    assert (listed["details"]["quantization_level"], running["context_length"]) == ("Q4_1", 2048)
    shown = post(client, "/api/show", model=f"{name}:latest")
    assert shown["model_info"]["llama.context_length"] == 2048
    assert shown["capabilities"] == ["completion"]


def models_of(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    return client.get(path).json()["models"]
