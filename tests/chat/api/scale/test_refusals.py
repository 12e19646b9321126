"""Refusals of the schema, the model, the key and the engine, in Scale's shape and with sent names."""

from __future__ import annotations

import json

import pytest

from chat.generation.completions import LimitExceeded
from chat.generation.limits import LimitKind
from engine.api import EngineUnavailable, ErrorCode, Failed, Outcome, RequestError
from tests.chat.api.conftest import ADMITTED, completed, delta
from tests.chat.api.scale.bad_requests import BAD, BAD_MESSAGES, NOT_OF_THE_KEY
from tests.chat.api.scale.conftest import ROUTE, ROUTES, events, post

EVERY = [*BAD, *NOT_OF_THE_KEY, *BAD_MESSAGES]


@pytest.mark.parametrize("bad", EVERY, ids=[bad.name for bad in EVERY])
async def test_a_bad_request_names_the_sent_field_also_for_streams(scale, scripted, bad):
    response = await scale.post(ROUTE, json=bad.body("tiny"))
    answered = response.json()
    error = answered["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, bad.param, bad.code), error
    assert bad.says in error["message"]
    assert answered["detail"] == answered["message"] == error["message"]
    assert len(response.content) <= 16_384
    if bad.may_stream:
        streamed = await scale.post(ROUTE, json={**bad.body("tiny"), "stream": True})
        assert (streamed.status_code, streamed.content) == (400, response.content)
    assert scripted.requests == []


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("model", ["gpt-9", "tiny/", "a/b/c/tiny", "Tiny", "org/tiny/x/y"])
async def test_an_unknown_model_is_404(scale, route, model):
    response = await post(scale, route, model=model)
    assert (response.status_code, response.json()["error"]["code"], response.json()["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    assert "detail" in response.json()


@pytest.mark.parametrize(
    ("fields", "param", "named"),
    [
        ({"guided_json": {"type": "foo"}}, "structured_outputs.json", "guided_json"),
        ({"guided_regex": "("}, "structured_outputs.regex", "guided_regex"),
        (
            {"guided_json": {}, "guided_whitespace_pattern": " "},
            "structured_outputs.whitespace_pattern",
            "guided_whitespace_pattern",
        ),
        (
            {"inference_extra_params": {"structured_outputs": {"json": {}}}},
            "structured_outputs.json",
            "inference_extra_params.structured_outputs.json",
        ),
        (
            {"inference_extra_params": {"allowed_token_ids": [5]}},
            "allowed_token_ids",
            "inference_extra_params.allowed_token_ids",
        ),
        ({"max_completion_tokens": 9}, "max_tokens", "max_completion_tokens"),
        (
            {"inference_extra_params": {"max_completion_tokens": 9}},
            "max_tokens",
            "inference_extra_params.max_completion_tokens",
        ),
        ({"functions": [{"name": "f"}]}, "tools.0.function.parameters", "functions.0.parameters"),
        ({"suffix": "x"}, "suffix", "suffix"),
        (
            {"messages": [{"content": "a"}, {"content": "b"}], "memory_strategy": {"k": 1}},
            "messages.0.content.0.file",
            "messages.1.content.0.file",
        ),
        ({}, "messages", "messages"),
    ],
    ids=str,
)
async def test_an_engine_refusal_names_the_sent_field(scale, scripted, fields, param, named):
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, f"{param} is wrong", param)]
    error = (await post(scale, **fields)).json()["error"]
    assert (error["param"], error["message"]) == (named, f"{named} is wrong")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_during_the_run_names_the_sent_field(scale, scripted, stream):
    message = "structured_outputs.regex left no token to choose"
    scripted.script = [ADMITTED, delta("a"), Failed(ErrorCode.INVALID_VALUE, message, param="structured_outputs.regex")]
    response = await post(scale, guided_regex="a+", stream=stream)
    answered = response.json() if not stream else json.loads(dict(events(response.text))["error"])
    assert (answered["error"]["param"], answered["detail"]) == ("guided_regex", "guided_regex left no token to choose")


async def test_the_context_overflow_text_is_returned_unchanged(scale, scripted):
    text = (
        "This model's maximum context length is 4096 tokens. However, "
        "you requested 5000 tokens (4800 in the messages, 200 in the …)."
    )
    scripted.script = [RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, text, "messages")]
    response = await post(scale, max_tokens=200)
    assert response.json()["detail"] == text
    assert scripted.requests[0].stop.must_fit


async def test_limits_and_missing_workers_have_the_same_error_shape(scale, scripted):
    scripted.refusal = LimitExceeded(
        LimitKind.REQUESTS, "slow down", retry_after_s=5, headers={"x-ratelimit-limit-requests": "5"}
    )
    response = await post(scale)
    assert (response.status_code, response.headers["retry-after"], response.json()["detail"]) == (429, "5", "slow down")
    assert response.headers["x-ratelimit-limit-requests"] == "5"
    scripted.refusal = EngineUnavailable(ErrorCode.OVERLOADED, "full")
    assert (await post(scale)).json()["detail"] == "full"


@pytest.mark.parametrize(
    "ending",
    [completed(outcome=Outcome.TIMED_OUT), Failed(ErrorCode.INFERENCE_TIMEOUT, "late", outcome=Outcome.TIMED_OUT)],
)
async def test_a_passed_deadline_is_a_non_retryable_408_without_text(scale, scripted, ending):
    scripted.script = [ADMITTED, delta("partial"), ending]
    response = await post(scale, inference_timeout="0.5")
    assert (response.status_code, response.json()["error"]["code"]) == (408, "inference_timeout")
    assert response.json()["error"]["type"] == "timeout_error"
    assert response.headers["x-should-retry"] == "false"
    assert "partial" not in response.text
    assert scripted.readers[0].num_left == 1


async def test_a_deadline_in_a_stream_is_an_error_event_and_the_end(scale, scripted):
    scripted.script = [ADMITTED, delta("partial"), completed(outcome=Outcome.TIMED_OUT)]
    response = await post(scale, inference_timeout=0.5, stream=True, stream_options={"include_usage": True})
    assert response.status_code == 200
    *chunks, error, end = events(response.text)
    assert [name for name, _ in chunks] == [""] * len(chunks)
    assert '"finish_reason":"' not in response.text
    assert (error[0], end) == ("error", ("done", "[DONE]"))
    assert '"code": "inference_timeout"' in error[1]
    assert '"detail"' in error[1]


async def test_a_deadline_passed_before_any_worker_takes_the_run_is_408(scale, scripted):
    scripted.script = [EngineUnavailable(ErrorCode.OVERLOADED, "No worker took the request")]
    response = await post(scale, inference_timeout=0.000001)
    assert response.status_code == 408
    assert scripted.readers[0].stopped == [Outcome.TIMED_OUT], "the log tells of a time-out, not of a client that left"


@pytest.mark.parametrize(("asked", "seconds"), [(5, 5), ("0.5", 0.5), (1e9, 600)])
async def test_the_deadline_counts_from_the_arrival_and_is_at_most_the_servers(scale, scripted, asked, seconds):
    await post(scale, inference_timeout=asked)
    request = scripted.requests[0]
    assert request.deadline_at - request.arrived_at == pytest.approx(seconds)
