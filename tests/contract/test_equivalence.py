"""Sixty requests, each in three dialects: the same text, usage, finish reason and other fields of the answer.

The Lightcone dialect on its bare route, Scale's with its own header, names and framing, and OpenAI's with its client.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from chat.api.scale.fields import GUIDED, OWN, SHARED
from tests.contract.equivalence_requests import DEFAULTS, REQUESTS
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

AT_ONCE = 6
ALONE = ("a prediction",)
OPENAI_FIELDS = frozenset(openai.resources.chat.completions.Completions.create.__annotations__)
GUIDED_FIELDS = {part: name for name, part in GUIDED.items()} | {"whitespace_pattern": "guided_whitespace_pattern"}

Answer = dict[str, Any]


def test_there_are_sixty_requests():
    assert len(REQUESTS) == 60


@pytest.fixture(scope="module")
def answers(invariant_lightcone: ServedLightcone) -> dict[str, list[Answer]]:
    """Return the answers of the three dialects to each request."""

    served = invariant_lightcone

    def ask(fields: dict[str, Any]) -> list[Answer]:
        body = {**DEFAULTS, **fields}
        return [lightcone_answer(served, body), scale_answer(served, body), openai_answer(served, body)]

    # The number of drafts depends on the other sequences of a step, so that this request runs alone.
    alone = {name: ask(REQUESTS[name]) for name in ALONE}
    crowd = {name: fields for name, fields in REQUESTS.items() if name not in ALONE}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return alone | dict(zip(crowd, pool.map(ask, crowd.values()), strict=True))


@pytest.mark.parametrize("name", REQUESTS)
def test_three_dialects_give_the_same_answer(answers, name):
    bare, scale, through_openai = answers[name]
    assert bare["choices"]
    assert all(choice["finish_reason"] for choice in bare["choices"])
    assert scale == bare
    assert through_openai == bare


def test_the_answers_are_worth_comparing(answers):
    """Calls, constraints, seeds and other fields have all had an effect."""
    bare = {name: comparable[0] for name, comparable in answers.items()}
    plain = bare["a question"]["choices"]
    assert len({json.dumps(comparable["choices"], sort_keys=True) for comparable in bare.values()}) > 38
    assert bare["a call"]["choices"][0]["calls"][0][0] == "weather"
    assert bare["a stream of a call"]["choices"] == bare["a named call"]["choices"]
    assert json.loads(bare["a guided schema"]["choices"][0]["content"])["colour"] in ("red", "blue")
    assert bare["a guided choice"]["choices"][0]["content"] in ("the Baltic", "the Pacific")
    assert bare["a stream"]["choices"] == plain
    assert len(bare["several draws"]["choices"]) == 3
    assert {choice["finish_reason"] for comparable in bare.values() for choice in comparable["choices"]} >= {
        "stop",
        "length",
        "tool_calls",
    }


def lightcone_answer(served: ServedLightcone, body: dict[str, Any]) -> Answer:
    sent = {"model": served.model, **body}
    return asked(
        f"{served.base_url}/chat/completions",
        {"Authorization": f"Bearer {served.api_key}"},
        sent,
        end="data: [DONE]\n\n",
    )


def scale_answer(served: ServedLightcone, body: dict[str, Any]) -> Answer:
    """Answer with constraints under Scale's names; constraints without such a name are extra parameters."""
    sent: dict[str, Any] = {"model": f"lightcone/{served.model}"}
    extra: dict[str, Any] = {}
    for name, value in body.items():
        if name == "structured_outputs":
            sent |= {GUIDED_FIELDS[part]: constraint for part, constraint in value.items()}
        elif name in OWN or name in SHARED:
            sent[name] = value
        else:
            extra[name] = value
    if extra:
        sent["inference_extra_params"] = extra
    url, headers = f"{served.base_url}/v4/beta/chat/completions", {"x-api-key": served.api_key}
    return asked(url, headers, sent, end="event: done\ndata: [DONE]\n\n")


def openai_answer(served: ServedLightcone, body: dict[str, Any]) -> Answer:
    known = {name: value for name, value in body.items() if name in OPENAI_FIELDS and value is not None}
    further = {name: value for name, value in body.items() if name not in OPENAI_FIELDS or value is None}
    with openai.OpenAI(api_key=served.api_key, base_url=served.api_url, max_retries=0, timeout=120) as client:
        if body.get("stream"):
            chunks = client.chat.completions.create(model=served.model, extra_body=further, **known)
            return joined([chunk.model_dump(exclude_unset=True) for chunk in chunks])
        raw = client.chat.completions.with_raw_response.create(model=served.model, extra_body=further, **known)
        assert raw.parse().choices[0].finish_reason
        return comparable(raw.http_response.json())


def asked(url: str, headers: dict[str, str], body: dict[str, Any], *, end: str) -> Answer:
    response = httpx.post(url, json=body, headers=headers, timeout=120)
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        return comparable(response.json())
    assert response.text.endswith(end)
    frames = [
        line.removeprefix("data: ") for line in response.text.removesuffix(end).split("\n") if line.startswith("data: ")
    ]
    return joined([json.loads(frame) for frame in frames])


def comparable(body: dict[str, Any]) -> Answer:
    """Return an answer without what differs between requests: ids, times and cached tokens."""
    choices = [
        {
            "content": choice["message"]["content"] or "",
            "reasoning": choice["message"].get("reasoning") or "",
            "calls": [
                (call["function"]["name"], call["function"]["arguments"])
                for call in choice["message"].get("tool_calls") or ()
            ]
            or calls_of_the_old_form(choice["message"].get("function_call")),
            "finish_reason": choice["finish_reason"],
            "stop_reason": choice["stop_reason"],
            "logprobs": (choice["logprobs"] or {}).get("content") or [],
            "token_ids": choice.get("token_ids"),
        }
        for choice in body["choices"]
    ]
    prompt = [body.get("prompt_token_ids"), body.get("prompt_logprobs")]
    return {"model": body["model"], "choices": choices, "usage": comparable_usage(body["usage"]), "prompt": prompt}


def joined(chunks: list[dict[str, Any]]) -> Answer:
    """Return the same for a stream."""
    choices: dict[int, Answer] = {}
    usage = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            empty = {
                **dict.fromkeys(("finish_reason", "stop_reason", "token_ids")),
                "content": "",
                "reasoning": "",
                "calls": [],
                "logprobs": [],
            }
            seen, delta = choices.setdefault(choice["index"], empty), choice["delta"]
            seen["content"] += delta.get("content") or ""
            seen["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or ():
                seen["calls"] += [("", "")] * (call["index"] + 1 - len(seen["calls"]))
                name, arguments = seen["calls"][call["index"]]
                function = call["function"]
                seen["calls"][call["index"]] = (
                    name + (function.get("name") or ""),
                    arguments + (function.get("arguments") or ""),
                )
            seen["finish_reason"] = choice["finish_reason"] or seen["finish_reason"]
            seen["stop_reason"] = choice.get("stop_reason") or seen["stop_reason"]
            seen["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
    ordered_choices = [choices[index] for index in sorted(choices)]
    return {
        "model": chunks[0]["model"],
        "choices": ordered_choices,
        "usage": comparable_usage(usage),
        "prompt": [None, None],
    }


def calls_of_the_old_form(call: dict[str, str] | None) -> list[tuple[str, str]]:
    return [] if call is None else [(call["name"], call["arguments"])]


def comparable_usage(usage: dict[str, Any] | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}
