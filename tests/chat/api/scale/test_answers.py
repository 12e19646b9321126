"""Answers and streams of the Scale routes."""

from __future__ import annotations

import json

import httpx
import pytest

from chat.access.keys import Caller
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from engine.api import Delta
from tests.chat.api.conftest import ADMITTED, HELLO, KEY, MODEL, completed, delta, finished
from tests.chat.api.scale.conftest import ROUTE, ROUTES, body, events, post


@pytest.mark.parametrize("route", [*ROUTES, *(f"{route}/" for route in ROUTES)])
async def test_both_generations_answer_with_the_whole_object(scale, scripted, route):
    response = await post(scale, route)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    answer = response.json()
    assert answer["id"] == "chatcmpl-" + response.headers["x-request-id"]
    assert (answer["object"], answer["model"]) == ("chat.completion", "org/tiny")
    assert isinstance(answer["created"], int)
    (choice,) = answer["choices"]
    assert choice["index"] == 0
    assert choice["message"]["content"] == "Hello"
    assert choice["message"]["refusal"] is None
    assert "tool_calls" not in choice["message"]
    assert answer["usage"]["total_tokens"] == 5
    trace = scripted.traces[0]
    assert (trace.dialect, trace.route) == ("scale", route)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_stream_ends_with_a_named_event_and_only_it_has_a_name(scale, route):
    response = await post(scale, route, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.text.endswith("event: done\ndata: [DONE]\n\n")
    *chunks, end = events(response.text)
    assert end == ("done", "[DONE]")
    assert {name for name, _ in chunks} == {""}
    values = [json.loads(data) for _, data in chunks]
    assert all(value["object"] == "chat.completion.chunk" for value in values)
    assert "".join(value["choices"][0]["delta"].get("content", "") for value in values if value["choices"]) == "Hello"
    assert values[-1]["choices"] == []
    assert values[-1]["usage"]["total_tokens"] == 5


async def test_text_that_imitates_frames_stays_inside_its_string(scale, scripted):
    scripted.script = [ADMITTED, delta("\n\nevent: done\ndata: [DONE]\n\n"), *HELLO[3:]]
    *chunks, end = events((await post(scale, stream=True)).text)
    assert end == ("done", "[DONE]")
    assert json.loads(chunks[1][1])["choices"][0]["delta"]["content"] == "\n\nevent: done\ndata: [DONE]\n\n"


async def test_the_best_of_many_are_the_choices(scale, scripted):
    scripted.script = [ADMITTED, delta("a", 0), delta("b", 1), finished(0), finished(1), completed(output=9)]
    answer = (await post(scale, best_of=5, n=2)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] == 9
    request = scripted.requests[0]
    assert (request.best_of, request.num_choices) == (5, 2)


async def test_a_suffix_reaches_the_engine_as_a_prompt(scale, scripted):
    answer = (await post(scale, suffix="return x")).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    request = scripted.requests[0]
    assert (request.raw.text, request.raw.suffix, request.messages) == ("hi", "return x", ())


async def test_a_prediction_reaches_the_engine(scale, scripted):
    await post(scale, prediction={"type": "content", "content": "Hello"})
    assert scripted.requests[0].prediction == "Hello"


async def test_logprobs_are_in_the_chat_form(scale, scripted):
    scripted.script = [ADMITTED, Delta(0, (5,), "a", ()), finished(), completed()]
    assert (await post(scale, logprobs=True)).json()["choices"][0]["logprobs"] == {"content": [], "refusal": None}


# Models.


@pytest.mark.parametrize(
    "model", ["org/tiny", "tiny", "lightcone/tiny", "any/org/tiny", "org/tiny/blue", "a/tiny/b", "openai/tiny"]
)
async def test_a_model_is_found_by_its_own_name_beneath_any_labels(scale, scripted, model):
    response = await post(scale, model=model)
    assert (response.status_code, response.json()["model"]) == (200, "org/tiny")
    assert scripted.traces[0].model_asked == model


async def test_the_first_existing_name_decides_even_if_forbidden_to_the_key(scale, monkeypatch):
    hidden = ModelEntry(name="hidden", owned_by="x", created_at=1, fingerprint="x")

    async def resolve(*, name, caller=None):
        if name == "org/tiny":
            return hidden
        return MODEL if name == "tiny" else None

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(Caller, "can_use_model", lambda self, name: name != "hidden")
    refused = await post(scale, model="org/tiny")
    assert refused.status_code == 404
    assert "does not exist or you do not have access to it" in refused.json()["message"]
    assert (await post(scale, model="other/tiny")).status_code == 200


async def test_routes_without_prefix_accept_exact_names_only(api):
    response = await api.post("/v1/chat/completions", json=body(model="lightcone/tiny"))
    assert response.status_code == 404


# Keys.


async def test_the_dialects_key_header_precedes_a_bearer_token(scripted):
    from lightcone_site.asgi import http

    async def status(**headers):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(http), base_url="http://localhost", headers=headers
        ) as client:
            return (await client.post(ROUTE, json=body())).status_code

    assert await status(Authorization=f"Bearer {KEY}") == 200
    assert await status(**{"x-api-key": KEY, "Authorization": "Bearer bad"}) == 200
    assert await status(**{"x-api-key": "bad", "Authorization": f"Bearer {KEY}"}) == 401
    assert await status() == 401


async def test_the_key_of_another_provider_is_accepted_dropped_and_never_logged(scale, scripted, caplog):
    with caplog.at_level("DEBUG"):
        response = await scale.post(
            ROUTE, json=body(), headers={"x-openai-api-key": "sk-secret", "x-selected-account-id": "acc"}
        )
    assert response.status_code == 200
    assert "sk-secret" not in caplog.text
    assert "sk-secret" not in repr(scripted.traces)
