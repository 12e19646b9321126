"""The prompt form of Scale's clients, of both generations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.text_schema import CompletionRequest, TextRequest, text_parse
from chat.api.scale.text_read import OWN_TEXT, SHARED_TEXT, ScaleTextRequest, scale_text_parse
from chat.errors import ApiError
from engine.api import ConstraintKind, ErrorCode, Failed, RawPrompt, RequestError, TokenLogprob, TopLogprob
from tests.chat.api.conftest import ADMITTED, completed, delta, finished
from tests.chat.api.scale.conftest import events
from tests.chat.api.scale.test_read import JSON

ROUTE = "/v4/beta/completions"
ENTRY = TokenLogprob(5, -0.5, "Hi", b"Hi", (TopLogprob(5, -0.5, "Hi", b"Hi"), TopLogprob(6, -1.5, "Ho", b"Ho")))
SCRIPT = [ADMITTED, delta("Hi", logprobs=(ENTRY,)), finished(), completed()]


async def post(scale, route: str = ROUTE, **fields: Any):
    return await scale.post(route, json={"model": "lightcone/tiny", "prompt": "Say hi.", **fields})


def read(**fields: Any) -> TextRequest:
    return scale_text_parse({"model": "m", "prompt": "p", **fields})


@pytest.mark.parametrize("route", [ROUTE, f"{ROUTE}/"])
async def test_a_prompt_is_continued(scale, scripted, route):
    answer = (await post(scale, route)).json()
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "org/tiny"
    (choice,) = answer["choices"]
    assert (choice["text"], choice["index"], choice["finish_reason"], choice["logprobs"]) == ("Hello", 0, "stop", None)
    assert answer["usage"]["total_tokens"] == 5
    assert scripted.requests[0].raw == RawPrompt(text="Say hi.", param="prompt")
    assert scripted.traces[0].dialect == "scale"


async def test_a_stream_ends_like_a_chat_stream(scale):
    response = await post(scale, stream=True, stream_options={"include_usage": True})
    *chunks, end = events(response.text)
    assert end == ("done", "[DONE]")
    values = [json.loads(data) for name, data in chunks if not name]
    assert len(values) == len(chunks)
    assert "".join(value["choices"][0]["text"] for value in values if value["choices"]) == "Hello"
    assert values[-1]["usage"]["total_tokens"] == 5


async def test_several_prompts_are_several_choices(scale, scripted):
    answer = (await post(scale, prompt=["a", "b"])).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [request.raw.text for request in scripted.requests] == ["a", "b"]


@pytest.mark.parametrize("asked", [{"logprobs": True, "top_logprobs": 1}, {"return_token_log_probs": True}])
async def test_boolean_logprobs_give_the_chat_shape(scale, scripted, asked):
    scripted.script = list(SCRIPT)
    logprobs = (await post(scale, **asked)).json()["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert [entry["token"] for entry in logprobs["content"]] == ["Hi"]
    assert scripted.requests[0].logprobs.enabled
    assert scripted.requests[0].logprobs.top == asked.get("top_logprobs", 0)
    scripted.script = list(SCRIPT)
    chunks = [json.loads(data) for name, data in events((await post(scale, stream=True, **asked)).text) if not name]
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [logprobs, None]


async def test_integer_logprobs_give_the_text_completion_shape(scale, scripted):
    scripted.script = list(SCRIPT)
    logprobs = (await post(scale, logprobs=1)).json()["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["Hi"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"Hi": -0.5, "Ho": -1.5}],
        "text_offset": [0],
    }


async def test_a_prompt_is_scored_only_for_the_shape_that_reports_scores(scale, scripted):
    answer = (await post(scale, echo=True, logprobs=True, top_logprobs=2)).json()["choices"][0]
    assert answer["text"] == "Say hi.Hello"
    assert scripted.requests[0].logprobs.prompt is None
    assert not scripted.requests[0].prompt.returns_tokens
    await post(scale, echo=True, logprobs=2)
    assert scripted.requests[1].logprobs.prompt == 2


@pytest.mark.parametrize(
    ("fields", "limit", "must_fit"),
    [
        ({}, 16, False),
        ({"max_tokens": 5}, 5, True),
        ({"max_new_tokens": 5}, 5, True),
        ({"max_completion_tokens": 5, "max_tokens": 6, "max_new_tokens": 7}, 5, True),
        ({"max_tokens": 6, "max_new_tokens": 7}, 6, True),
        ({"inference_extra_params": {"max_tokens": 8}}, 8, True),
        ({"max_tokens": 6, "inference_extra_params": {"max_tokens": 8}}, 6, True),
    ],
)
def test_the_limit_has_three_names(fields, limit, must_fit):
    stop = read(**fields).generation.stop
    assert (stop.max_tokens, stop.must_fit) == (limit, must_fit)


def test_other_parameters_equal_those_of_chats_and_text_completions():
    parsed = read(
        guided_regex="a+",
        stop_sequences=["x"],
        suffix="s",
        inference_timeout="3",
        best_of=2,
        inference_extra_params={"min_p": 0.5},
    )
    generation = parsed.generation
    assert generation.constraint.kind == ConstraintKind.REGEX
    assert (generation.stop.stop, parsed.suffix, parsed.delivery.timeout_s) == (("x",), "s", 3.0)
    assert (generation.best_of, generation.draw.min_p) == (2, 0.5)
    assert parsed.model_names == ("m",)
    plain = {"temperature": 0.5, "seed": 3, "echo": True, "user": "ann", "top_k": 4, "n": 2, "logit_bias": {"5": 1}}
    sent, expected = read(**plain), text_parse({"model": "m", "prompt": "p", **plain})
    assert (sent.generation, sent.response, sent.delivery) == (
        expected.generation,
        expected.response,
        expected.delivery,
    )


@pytest.mark.parametrize("name", [name for name in (*OWN_TEXT, *SHARED_TEXT) if name not in ("model", "prompt")])
def test_null_equals_absent(name):
    assert read(**{name: None}) == read()


@given(
    st.dictionaries(st.sampled_from([*OWN_TEXT, *SHARED_TEXT]), JSON, max_size=6),
    st.dictionaries(st.sampled_from(sorted(CompletionRequest().fields)), JSON, max_size=4),
)
def test_any_body_is_read_or_refused_by_a_sent_field_name(body, extra):
    sent = {"model": "m", "prompt": "p", "inference_extra_params": extra, **body}
    refused = None
    try:
        scale_text_parse(sent)
    except ApiError as error:
        refused = error
    if refused is not None:
        assert refused.status == 400
        name, _, rest = (refused.param or "").partition(".")
        assert name in sent or refused.code == "missing_required_parameter"
        assert name != "inference_extra_params" or not rest or rest.partition(".")[0] in sent["inference_extra_params"]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": None}, "missing_required_parameter", "model"),
        ({"prompt": None}, "missing_required_parameter", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": 5}, "invalid_type", "prompt"),
        ({"prompt": ["a", 5]}, "invalid_type", "prompt.1"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported_parameter", "tools"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"modalities": ["audio"]}, "unsupported_parameter", "modalities"),
        ({"audio": {}}, "missing_required_parameter", "audio.format"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"logprobs": 21}, "invalid_value", "logprobs"),
        ({"logprobs": "1"}, "invalid_type", "logprobs"),
        ({"top_logprobs": 1}, "invalid_value", "top_logprobs"),
        ({"logprobs": 1, "top_logprobs": 1}, "invalid_value", "top_logprobs"),
        ({"stop": ["a"], "stop_sequences": ["b"]}, "invalid_value", "stop_sequences"),
        ({"stop_sequences": ["a"] * 5}, "invalid_value", "stop_sequences"),
        ({"stop_sequences": [""]}, "invalid_value", "stop_sequences.0"),
        ({"max_new_tokens": 0}, "invalid_value", "max_new_tokens"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
        ({"best_of": 2, "n": 3}, "invalid_value", "best_of"),
        ({"guided_json": {}, "guided_regex": "a"}, "invalid_value", "guided_json"),
        ({"suffix": "x", "echo": True}, "invalid_value", "suffix"),
        ({"inference_timeout": 0}, "invalid_value", "inference_timeout"),
        ({"inference_extra_params": {"min_p": 2}}, "invalid_value", "inference_extra_params.min_p"),
        ({"inference_extra_params": {"priority": -5}}, "invalid_value", "inference_extra_params.priority"),
    ],
    ids=str,
)
async def test_a_bad_request_names_the_sent_field(scale, scripted, fields, code, param):
    response = await post(scale, **fields)
    answered = response.json()
    assert (response.status_code, answered["error"]["code"], answered["error"]["param"]) == (400, code, param), answered
    assert answered["detail"] == answered["message"]
    assert scripted.requests == []


@pytest.mark.parametrize(
    ("fields", "param", "named"),
    [
        ({"max_new_tokens": 9}, "max_tokens", "max_new_tokens"),
        ({"logprobs": True, "top_logprobs": 3}, "top_logprobs", "top_logprobs"),
        ({"logprobs": 3}, "top_logprobs", "logprobs"),
        ({"guided_regex": "("}, "structured_outputs.regex", "guided_regex"),
        ({"suffix": "x"}, "suffix", "suffix"),
        ({}, "prompt", "prompt"),
    ],
)
async def test_an_engine_refusal_names_the_sent_field(scale, scripted, fields, param, named):
    scripted.script = [RequestError(ErrorCode.INVALID_VALUE, f"{param} is wrong", param)]
    error = (await post(scale, **fields)).json()["error"]
    assert (error["param"], error["message"]) == (named, f"{named} is wrong")


async def test_a_failure_during_the_run_names_the_sent_field(scale, scripted):
    message = "structured_outputs left no token to choose"
    scripted.script = [ADMITTED, Failed(ErrorCode.INVALID_VALUE, message, param="structured_outputs")]
    assert (await post(scale, guided_regex="a")).json()["error"]["param"] == "guided_regex"


async def test_an_unknown_model_is_404(scale):
    assert (await post(scale, model="gpt-9")).json()["error"]["code"] == "model_not_found"


def test_the_described_request_has_every_parameter_once():
    fields = ScaleTextRequest().fields
    assert set(fields) == {*OWN_TEXT, *SHARED_TEXT}
    assert [name for name, field in fields.items() if field.required] == ["model", "prompt"]
