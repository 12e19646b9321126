"""Scale's routes against a served Lightcone: the effect of their own parameters."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.live

SEA = [{"role": "user", "content": "Tell me about the sea."}]
LONG = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "word " * 60},
    {"role": "assistant", "content": "Yes."},
    *SEA,
]


class Asker:
    """A client of short greedy requests with Scale's header."""

    def __init__(self, lightcone) -> None:
        self.model = lightcone.model
        self.client = httpx.Client(base_url=lightcone.base_url, headers={"x-api-key": lightcone.api_key}, timeout=120)

    def post(self, route: str = "/v4/beta/chat/completions", **fields: Any) -> httpx.Response:
        body = {"model": f"lightcone/{self.model}", "messages": SEA, "temperature": 0, "max_tokens": 8, **fields}
        return self.client.post(route, json={name: value for name, value in body.items() if value is not None})

    def answer(self, **fields: Any) -> dict[str, Any]:
        response = self.post(**fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def text(self, **fields: Any) -> str:
        return str(self.answer(**fields)["choices"][0]["message"]["content"])

    def refusal(self, status: int = 400, **fields: Any) -> tuple[str, str]:
        """Return (param, code) after checking the three places of the message."""
        response = self.post(**fields)
        assert response.status_code == status, response.text
        answered = response.json()
        assert answered["detail"] == answered["message"] == answered["error"]["message"]
        return answered["error"]["param"], answered["error"]["code"]


@pytest.fixture(scope="module")
def ask(lightcone):
    asker = Asker(lightcone)
    asker.answer()  # answers are compared: every test finds the prompt cached
    yield asker
    asker.client.close()


@pytest.mark.parametrize("route", ["/v4/beta/chat/completions", "/v5/chat/completions/"])
@pytest.mark.parametrize("vendor", ["", "openai/", "a/{}/"])
def test_a_model_answers_under_any_label(ask, route, vendor):
    name = f"{vendor}{ask.model}" if "{}" not in vendor else f"a/{ask.model}/blue"
    answer = ask.post(route, model=name).json()
    assert answer["model"] == ask.model
    assert answer["choices"][0]["message"]["content"]
    assert ask.refusal(404, model=f"{ask.model}/a/b/c") == ("model", "model_not_found")


def test_memory_cuts_the_prompt_and_keeps_the_system(ask):
    whole, cut = ask.answer(messages=LONG), ask.answer(messages=LONG, memory_strategy={"name": "last_k", "k": 1})
    alone = ask.answer(messages=[LONG[0], LONG[3]])
    assert cut["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"] < whole["usage"]["prompt_tokens"] - 50
    assert cut["choices"][0]["message"] == alone["choices"][0]["message"]


@pytest.mark.parametrize(
    ("fields", "accepts"),
    [
        ({"guided_choice": ["Yes, sir", "No, sir"]}, lambda text: text in ("Yes, sir", "No, sir")),
        ({"guided_regex": "[0-9]{2}-[0-9]{2}"}, lambda text: len(text) == 5 and text[2] == "-"),
        ({"guided_grammar": 'root ::= "left" | "right"'}, lambda text: text in ("left", "right")),
        ({"guided_json": {"enum": ["a", 5]}}, lambda text: json.loads(text) in ("a", 5)),
        (
            {"guided_json": '{"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2}'},
            lambda text: text == "[1,1]",
        ),
        (
            {
                "guided_json": {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2},
                "guided_whitespace_pattern": " ",
            },
            lambda text: text == "[ 1 , 1 ]",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_guided_answer_keeps_its_constraint(ask, fields, accepts):
    text = ask.text(**fields, max_tokens=16)
    assert accepts(text), text
    assert ask.text(**fields, max_tokens=16, guided_decoding_backend="outlines") == text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_json": {"type": "foo"}}, "guided_json"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_regex": "([a-z]{1,1000}){1,1000}"}, "guided_regex"),
        ({"guided_grammar": 'root ::= root "a"'}, "guided_grammar"),
        ({"inference_extra_params": {"allowed_token_ids": [10_000_000]}}, "inference_extra_params.allowed_token_ids"),
        ({"suffix": "return 1"}, "suffix"),
        (
            {"messages": [*LONG[:3], {"role": "user", "content": {"type": "image_url", "image_url": {"url": "x"}}}]},
            "messages.3.content.image_url",
        ),
    ],
    ids=str,
)
def test_an_engine_refusal_names_the_sent_field(ask, fields, param):
    assert ask.refusal(**fields)[0] == param


def test_a_prompt_and_a_limit_above_the_context_are_refused_here_and_lowered_there(ask, lightcone):
    context = int(ask.post(max_tokens=200_000).json()["error"]["message"].split("context length is ")[1].split()[0])
    assert ask.refusal(max_tokens=context) == ("messages", "context_length_exceeded")
    assert ask.refusal(max_completion_tokens=context - 5)[1] == "context_length_exceeded"
    bare = {"model": lightcone.model, "messages": SEA, "max_tokens": context, "stop": [" "]}
    assert (
        httpx.post(
            f"{lightcone.api_url}/chat/completions", json=bare, headers={"x-api-key": lightcone.api_key}
        ).status_code
        == 200
    )


def test_the_best_of_many_is_the_likeliest_of_the_same_draws(ask):
    drawn = {"temperature": 1, "seed": 5, "logprobs": True, "max_tokens": 6}
    every = ask.answer(n=4, **drawn)["choices"]

    def mean(choice):
        entries = choice["logprobs"]["content"]
        return sum(entry["logprob"] for entry in entries) / len(entries)

    ranked = sorted(every, key=mean, reverse=True)
    best = ask.answer(n=2, best_of=4, **drawn)
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert [choice["message"]["content"] for choice in best["choices"]] == [
        choice["message"]["content"] for choice in ranked[:2]
    ]
    assert best["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["content"]) for choice in every)
    assert ask.answer(best_of=4, **drawn | {"logprobs": False})["choices"][0]["logprobs"] is None


def test_a_good_prediction_is_counted_and_changes_nothing(ask):
    plain = ask.text(max_tokens=24)
    predicted = ask.answer(max_tokens=24, prediction={"type": "content", "content": plain})
    assert predicted["choices"][0]["message"]["content"] == plain
    assert predicted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0


def test_a_deadline_ends_the_run_and_is_not_to_be_repeated(ask):
    response = ask.post(max_tokens=6000, inference_timeout="0.5", inference_extra_params={"ignore_eos": True})
    assert (response.status_code, response.json()["error"]["code"]) == (408, "inference_timeout")
    assert response.headers["x-should-retry"] == "false"


def test_a_deadline_in_a_stream_is_an_error_event(ask):
    text = ask.post(
        max_tokens=6000, inference_timeout=0.5, stream=True, inference_extra_params={"ignore_eos": True}
    ).text
    assert text.endswith("event: done\ndata: [DONE]\n\n")
    (error,) = [frame for frame in text.split("\n\n") if frame.startswith("event: error\n")]
    answered = json.loads(error.partition("data: ")[2])
    assert (answered["error"]["code"], answered["detail"]) == ("inference_timeout", answered["message"])
    assert '"finish_reason":"' not in text


def test_extra_params_reach_the_engine(ask):
    answer = ask.answer(
        inference_extra_params={"min_tokens": 8, "ignore_eos": True, "return_token_ids": True, "max_tokens": 99}
    )
    assert answer["usage"]["completion_tokens"] == 8
    assert len(answer["choices"][0]["token_ids"]) == 8


def test_a_stream_has_the_text_of_the_whole_answer(ask):
    text = ask.post(stream=True, stream_options={"include_usage": True}).text
    frames = text.removesuffix("event: done\ndata: [DONE]\n\n").split("\n\n")[:-1]
    assert all(frame.startswith("data: {") for frame in frames)
    chunks = [json.loads(frame[6:]) for frame in frames]
    plain = ask.answer()
    assert (
        "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
        == plain["choices"][0]["message"]["content"]
    )
    assert chunks[-1]["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


def test_models_are_listed_for_both_generations(ask):
    first = ask.client.get("/v4/models").json()
    assert f"lightcone/{ask.model}" in [item["id"] for item in first["items"]]
    assert ask.client.get("/v4/models?page=2").json()["items"] == []
    assert ask.client.get(f"/v4/models/lightcone%2F{ask.model}").json()["name"] == ask.model
    (available,) = [
        item
        for item in ask.client.get("/v5/chat/completions/models").json()["items"]
        if item["model_name"] == ask.model
    ]
    assert available["model_availability"] == "available"
    assert ask.model in [item["name"] for item in ask.client.get("/v5/models").json()["items"]]


def test_the_prompt_form_continues_a_text(ask):
    asked = {"messages": None, "prompt": "The capital of France is", "route": "/v4/beta/completions"}
    older = ask.post(**asked, logprobs=True, top_logprobs=1).json()["choices"][0]
    newer = ask.post(**asked, logprobs=1).json()["choices"][0]
    assert older["text"] == newer["text"] != ""
    assert [entry["token"] for entry in older["logprobs"]["content"]] == newer["logprobs"]["tokens"]
    streamed = ask.post(**asked, stream=True).text
    chunks = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == older["text"]
    assert streamed.endswith("event: done\ndata: [DONE]\n\n")
    assert len(ask.post(**{**asked, "prompt": ["One", "Two"]}).json()["choices"]) == 2
