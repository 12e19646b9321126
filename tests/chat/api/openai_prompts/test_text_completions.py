"""Plain text completions: the legacy shape, prompts as text and ids, echoes and log-probabilities."""

import pytest

from engine.api import (
    Admitted,
    FinishReason,
    LogprobOptions,
    PromptScored,
    RankedLogprob,
    RawPrompt,
    TokenLogprob,
    TopLogprob,
)
from tests.chat.api.conftest import ADMITTED, completed, delta, finished

ROUTE = "/v1/completions"


async def complete(api, **fields):
    response = await api.post(ROUTE, json={"prompt": "Once", **fields})
    assert response.status_code == 200, response.text
    return response.json()


def entry(token: str, logprob: float, *top: tuple[str, float]) -> TokenLogprob:
    others = tuple(TopLogprob(ord(other[0]), value, other, other.encode()) for other, value in top)
    return TokenLogprob(ord(token[0]), logprob, token, token.encode(), others)


def ranked(token: str, logprob: float) -> RankedLogprob:
    return RankedLogprob(ord(token[0]), logprob, 1, token)


@pytest.mark.parametrize("path", ["/v1/completions", "/completions", "/v1/completions/", "/completions/"])
async def test_an_answer_is_a_text_completion_object(api, path):
    response = await api.post(path, json={"prompt": "Once"}, headers={"X-Request-Id": "req-1"})
    body = response.json()
    assert isinstance(body.pop("created"), int)
    assert body == {
        "id": "cmpl-req-1",
        "object": "text_completion",
        "model": "org/tiny",
        "system_fingerprint": "fp_tiny",
        "choices": [{"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
    }
    assert response.headers["x-request-id"] == "req-1"
    assert response.headers["cache-control"] == "no-store"


PROMPTS = [
    ("a text", [RawPrompt("a text", param="prompt")]),
    ("", [RawPrompt("", param="prompt")]),
    (["one", "two"], [RawPrompt("one", param="prompt.0"), RawPrompt("two", param="prompt.1")]),
    ([5, 6.0], [RawPrompt(token_ids=(5, 6), param="prompt")]),
    ([[5, 6], [7]], [RawPrompt(token_ids=(5, 6), param="prompt.0"), RawPrompt(token_ids=(7,), param="prompt.1")]),
    (["one", [7]], [RawPrompt("one", param="prompt.0"), RawPrompt(token_ids=(7,), param="prompt.1")]),
]


@pytest.mark.parametrize(("prompt", "raw"), PROMPTS, ids=str)
async def test_every_prompt_is_a_run_without_messages(api, scripted, prompt, raw):
    body = await complete(api, prompt=prompt)
    assert [request.raw for request in scripted.requests] == raw
    assert {request.messages for request in scripted.requests} == {()}
    assert {request.prompt.add_special_tokens for request in scripted.requests} == {True}
    assert len({request.run_id for request in scripted.requests}) == len(raw)
    assert [choice["index"] for choice in body["choices"]] == list(range(len(raw)))
    assert body["usage"]["prompt_tokens"] == 3 * len(raw)
    assert body["usage"]["total_tokens"] == 5 * len(raw)


async def test_choices_stand_in_the_order_of_the_prompts(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("b", 1),
        delta("a", 0),
        finished(1),
        finished(0, FinishReason.LENGTH),
        completed(),
    ]
    body = await complete(api, prompt=["x", "y"], n=2)
    assert [(choice["index"], choice["text"], choice["finish_reason"]) for choice in body["choices"]] == [
        (0, "a", "length"),
        (1, "b", "stop"),
        (2, "a", "length"),
        (3, "b", "stop"),
    ]


async def test_several_prompts_count_as_one_request_of_the_key(api, scripted):
    await complete(api, prompt=["x", "y", "z"])
    assert scripted.further == [False, True, True]


async def test_absent_max_tokens_defaults_to_16(api, scripted):
    await complete(api)
    (request,) = scripted.requests
    assert request.stop.max_tokens == 16
    assert request.sampling.top_k == 7, "the model's own default"
    assert request.logprobs == LogprobOptions(max_all=20)
    assert not request.prompt.returns_ids


async def test_log_probabilities_are_four_parallel_lists(api, scripted):
    first = delta("He", logprobs=(entry("He", -0.5, ("He", -0.5), ("A", -2.0)),))
    second = delta("llo", logprobs=(entry("llo", -3.0, ("y", -0.25)),))
    scripted.script = [ADMITTED, first, second, finished(), completed()]
    body = await complete(api, logprobs=1)
    assert scripted.requests[0].logprobs == LogprobOptions(True, 1, max_all=20)
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["He", "llo"],
        "token_logprobs": [-0.5, -3.0],
        "top_logprobs": [{"He": -0.5, "A": -2.0}, {"llo": -3.0, "y": -0.25}],
        "text_offset": [0, 2],
    }


async def test_tokens_can_be_reported_by_id(api, scripted):
    scripted.script = [ADMITTED, delta("Hey", logprobs=(entry("Hey", -0.5, ("A", -2.0)),)), finished(), completed()]
    logprobs = (await complete(api, logprobs=1, return_tokens_as_token_ids=True))["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["token_id:72"]
    assert logprobs["top_logprobs"] == [{"token_id:72": -0.5, "token_id:65": -2.0}]


async def test_of_two_tokens_with_the_same_text_the_likelier_is_reported(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("x", logprobs=(entry("x", -5.0, ("x", -1.0), ("y", -float("inf"))),)),
        finished(),
        completed(),
    ]
    (top,) = (await complete(api, logprobs=2))["choices"][0]["logprobs"]["top_logprobs"]
    assert top == {"x": -1.0, "y": -9999.0}


@pytest.mark.parametrize(("logprobs", "options"), [(False, (False, 0)), (0, (True, 0)), (True, (True, 1)), (-1, None)])
async def test_logprobs_false_gives_none_and_zero_the_chosen_token(api, scripted, logprobs, options):
    response = await api.post(ROUTE, json={"prompt": "Once", "logprobs": logprobs})
    if options is None:
        assert response.json()["error"]["param"] == "logprobs"
        return
    (request,) = scripted.requests
    assert (request.logprobs.enabled, request.logprobs.top) == options


# Echo.

SCORED = PromptScored(((), (ranked("On", -1.5), ranked("At", -0.5)), (ranked("ce", -0.25), ranked("xx", -3.0))))
ADMITTED_WITH_PROMPT = Admitted(3, 100, 1, (1, 2, 3), None, ("<s>", "On", "ce"))


async def test_the_echo_is_the_sent_text(api, scripted):
    assert (await complete(api, echo=True))["choices"][0]["text"] == "OnceHello"
    assert not scripted.requests[0].prompt.returns_text


@pytest.mark.parametrize("fields", [{"prompt": [1, 2]}, {"truncate_prompt_tokens": 2}])
async def test_ids_and_truncated_prompts_are_echoed_as_the_text_of_their_tokens(api, scripted, fields):
    scripted.script[0] = Admitted(2, 100, 1, prompt_text="ce")
    assert (await complete(api, echo=True, **fields))["choices"][0]["text"] == "ceHello"
    assert scripted.requests[0].prompt.returns_text


async def test_an_echo_has_prompt_log_probabilities_with_null_first(api, scripted):
    """The BOS that the tokenizer adds is listed before the text."""
    scripted.script = [
        ADMITTED_WITH_PROMPT,
        SCORED,
        delta("!", logprobs=(entry("!", -0.125, ("!", -0.125)),)),
        finished(),
        completed(),
    ]
    (choice,) = (await complete(api, echo=True, logprobs=1))["choices"]
    assert scripted.requests[0].logprobs == LogprobOptions(True, 1, prompt=1, max_all=20)
    assert scripted.requests[0].prompt.returns_tokens
    assert choice["text"] == "Once!"
    assert choice["logprobs"] == {
        "tokens": ["<s>", "On", "ce", "!"],
        "token_logprobs": [None, -1.5, -0.25, -0.125],
        "top_logprobs": [None, {"On": -1.5, "At": -0.5}, {"ce": -0.25, "xx": -3.0}, {"!": -0.125}],
        "text_offset": [0, 0, 2, 4],
    }
    assert "prompt_token_ids" not in choice
    assert "prompt_logprobs" not in choice


async def test_the_first_token_of_an_echo_has_an_id(api, scripted):
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, finished(), completed()]
    (choice,) = (await complete(api, echo=True, logprobs=0, return_tokens_as_token_ids=True))["choices"]
    assert choice["logprobs"]["tokens"] == ["token_id:1", "token_id:79", "token_id:99"]
    assert choice["logprobs"]["top_logprobs"] == [None, {"token_id:79": -1.5}, {"token_id:99": -0.25}]


async def test_echo_with_max_tokens_0_returns_the_prompt_alone(api, scripted):
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, finished(reason=FinishReason.LENGTH), completed()]
    (choice,) = (await complete(api, echo=True, logprobs=1, max_tokens=0, return_token_ids=True))["choices"]
    assert scripted.requests[0].stop.max_tokens == 0
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("Once", "length", None)
    assert choice["logprobs"]["tokens"] == ["<s>", "On", "ce"]
    assert choice["token_ids"] == []
    assert choice["prompt_token_ids"] == [1, 2, 3]


async def test_prompt_log_probabilities_have_the_requested_alternatives(api, scripted):
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, finished(), completed()]
    (choice,) = (await complete(api, echo=True, logprobs=0, prompt_logprobs=1))["choices"]
    assert scripted.requests[0].logprobs.prompt == 1
    assert choice["logprobs"]["top_logprobs"] == [None, {"On": -1.5}, {"ce": -0.25}]
    assert [None if entry is None else len(entry) for entry in choice["prompt_logprobs"]] == [None, 2, 2]
    scripted.script = [ADMITTED_WITH_PROMPT, SCORED, finished(), completed()]
    (choice,) = (await complete(api, echo=True, logprobs=1, prompt_logprobs=0))["choices"]
    assert [None if entry is None else list(entry) for entry in choice["prompt_logprobs"]] == [None, ["79"], ["99"]]


async def test_ids_come_with_each_choice(api, scripted):
    scripted.script[0] = Admitted(2, 100, 1, prompt_ids=(8, 9))
    (choice,) = (await complete(api, return_token_ids=True))["choices"]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == ([5, 5], [8, 9])


async def test_reasoning_is_part_of_the_text(api, scripted):
    from dataclasses import replace

    scripted.script = [ADMITTED, replace(delta("b"), reasoning="a"), finished(text="c"), completed()]
    assert (await complete(api))["choices"][0]["text"] == "abc"


@pytest.mark.parametrize(("sent", "used"), [("flex", "flex"), ("auto", "default"), ("priority", "default")])
async def test_the_used_service_tier_is_returned_only_if_one_was_sent(api, sent, used):
    assert (await complete(api, service_tier=sent))["service_tier"] == used
    assert "service_tier" not in await complete(api)


async def test_a_suffix_reaches_the_engine_and_an_empty_one_is_ignored(api, scripted):
    await complete(api, suffix="end")
    await complete(api, suffix="")
    assert [request.raw.suffix for request in scripted.requests] == ["end", None]
