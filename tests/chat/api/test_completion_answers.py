"""Plain completions: the generation request, the answer and its id."""

from dataclasses import replace

import pytest
from django.conf import settings

from chat.catalog import named_models
from engine.api import FinishReason, TokenLogprob, TopLogprob
from tests.chat.api.conftest import ADMITTED, HELLO, MODEL, ROUTE, chat, completed, delta, finished, post


async def test_the_answer_is_the_whole_specified_object(api, scripted):
    response = await post(api, model="tiny", user="ann")
    body = response.json()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    assert body["id"] == "chatcmpl-" + response.headers["x-request-id"]
    assert body["object"] == "chat.completion"
    assert isinstance(body["created"], int)
    assert body["model"] == MODEL.name
    assert body["system_fingerprint"].startswith("fp_")
    assert (body["prompt_logprobs"], body["prompt_token_ids"], body["kv_transfer_params"]) == (None, None, None)
    assert "service_tier" not in body
    (choice,) = body["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello",
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
        "reasoning_content": None,
    }
    assert {name: choice[name] for name in ("index", "logprobs", "finish_reason", "stop_reason", "token_ids")} == {
        "index": 0,
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": None,
    }
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


async def test_fields_of_the_body_reach_the_generation_request(api, scripted):
    await post(
        api,
        temperature=0.005,
        seed=-1,
        max_tokens=9,
        max_completion_tokens=5,
        stop="x",
        stop_token_ids=[7],
        min_tokens=2,
        cache_salt="s",
        metadata={"a": "b"},
        logprobs=True,
        top_logprobs=2,
        user="ann",
    )
    (request,) = scripted.requests
    assert request.model == MODEL.name
    assert request.messages == ({"role": "user", "content": "hi"},)
    assert request.sampling.temperature == 0.01
    assert request.sampling.seed is None
    assert request.sampling.top_k == 7, "the model's own default"
    assert (request.stop.max_tokens, request.stop.min_tokens, request.stop.stop, request.stop.stop_token_ids) == (
        5,
        2,
        ("x",),
        (7,),
    )
    assert (request.logprobs.enabled, request.logprobs.top) == (True, 2)
    assert (request.tenant, request.cache_salt) == ("1", "s")
    assert request.deadline_at - request.arrived_at == settings.LIGHTCONE_LIMITS.request_timeout
    (trace,) = scripted.traces
    assert (trace.dialect, trace.route, trace.is_stream, trace.user_label, trace.metadata) == (
        "lightcone",
        ROUTE,
        False,
        "ann",
        {"a": "b"},
    )


async def test_choices_keep_their_index_order(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("b", 1),
        delta("a", 0),
        finished(1, FinishReason.LENGTH),
        finished(0, FinishReason.STOP, "end", text="!"),
        completed(),
    ]
    body = (await post(api, n=2)).json()
    assert [(c["index"], c["message"]["content"], c["finish_reason"], c["stop_reason"]) for c in body["choices"]] == [
        (0, "a!", "stop", "end"),
        (1, "b", "length", None),
    ]


async def test_logprobs_hold_bytes_alternatives_and_no_infinities(api, scripted):
    entry = TokenLogprob(
        5, -0.5, "é", "é".encode(), (TopLogprob(5, -0.5, "é", "é".encode()), TopLogprob(6, float("-inf"), "x", b"x"))
    )
    scripted.script = [ADMITTED, delta("é", logprobs=(entry,)), finished(), completed()]
    (choice,) = (await post(api, logprobs=True, top_logprobs=2)).json()["choices"]
    assert choice["logprobs"] == {
        "content": [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [195, 169],
                "top_logprobs": [
                    {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
                    {"token": "x", "logprob": -9999.0, "bytes": [120]},
                ],
            }
        ],
        "refusal": None,
    }


async def test_the_used_service_tier_is_returned_if_one_was_sent(api, scripted):
    assert (await post(api, service_tier="auto")).json()["service_tier"] == "default"


async def test_without_a_generation_prompt_the_role_is_that_of_the_last_message(api, scripted):
    assert (await post(api, add_generation_prompt=False)).json()["choices"][0]["message"]["role"] == "user"


async def test_a_last_function_message_is_answered_in_its_own_role(api, scripted):
    """For the template it is a tool; the answer had that role too, and its echo was lost."""
    messages = [{"role": "user", "content": "hi"}, {"role": "function", "name": "f", "content": "so "}]
    message = (await post(api, messages=messages, add_generation_prompt=False, echo=True)).json()["choices"][0][
        "message"
    ]
    assert message["role"] == "function"
    assert message["content"].startswith("so ")


async def test_the_echo_is_the_last_message_if_roles_are_equal(api, scripted):
    async def content(**fields):
        scripted.script = list(HELLO)
        return (await post(api, echo=True, **fields)).json()["choices"][0]["message"]["content"]

    parts = [{"type": "text", "text": "Once"}, "upon "]
    opened = {"messages": [{"role": "assistant", "content": parts}], "add_generation_prompt": False}
    assert await content(**opened) == "Once\nupon Hello"
    assert await content(messages=[{"role": "user", "content": "hi"}]) == "Hello"


async def test_the_request_id_header_precedes_the_body_and_is_returned(api):
    response = await api.post(ROUTE, json=chat(request_id="from-body"), headers={"X-Request-Id": "from-header"})
    assert response.headers["x-request-id"] == "from-header"
    assert response.json()["id"] == "chatcmpl-from-header"
    assert (await post(api, request_id="from-body")).headers["x-request-id"] == "from-body"


@pytest.mark.parametrize("dirty", ["a b", "x" * 129, "ä".encode().decode("latin-1"), "a/b"])
async def test_a_malformed_request_id_is_replaced(api, dirty):
    response = await api.post(ROUTE, json=chat(), headers={"X-Request-Id": dirty.encode("latin-1")})
    assert response.headers["x-request-id"] != dirty
    assert response.json()["id"] == "chatcmpl-" + response.headers["x-request-id"]


@pytest.mark.parametrize("role", ["system", "developer", "user"])
async def test_the_system_prompt_of_a_model_is_for_conversations_without_their_own(api, scripted, monkeypatch, role):
    async def resolve(*, name, caller=None):
        return replace(MODEL, system_prompt="You are Mario.")

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    await post(api, messages=[{"role": role, "content": "hi"}, {"role": "user", "content": "ho"}])
    first = scripted.requests[0].messages[0]
    expected = ("system", "You are Mario.") if role == "user" else (role, "hi")
    assert (first["role"], first["content"]) == expected
    await api.post("/v1/completions", json={"prompt": "hi"})
    assert scripted.requests[1].messages == ()
