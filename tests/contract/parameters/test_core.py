"""Messages, model, number and length of answers, and the order of service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any

import httpx
import pytest

from tests.contract.parameters.conftest import COUNTING, QUESTION, Asker, joined


@pytest.mark.parameter("messages")
def test_the_model_answers_the_messages(ask):
    assert "3" in ask.text(messages=COUNTING)
    rendered = ask.prompt(messages=COUNTING)
    places = [rendered.index(f"{turn['role']}\n{turn['content']}") for turn in COUNTING]
    assert places == sorted(places)
    for bad in ([], "hi", [5]):
        assert ask.refusal(messages=bad)[0].startswith("messages")
    assert ask.refusal(messages=None) == ("messages", "missing_required_parameter")


@pytest.mark.parameter("model")
def test_a_model_is_found_by_name_and_the_default_without_one(ask):
    served = ask.served.model
    assert ask.answer(model=served)["model"] == ask.answer(model="")["model"] == ask.answer()["model"] == served
    response = ask.post(model="gpt-9")
    assert (response.status_code, response.json()["error"]["param"]) == (404, "model")


@pytest.mark.parameter("n")
def test_choices_are_the_answers_of_following_seeds(ask):
    drawn = {"temperature": 1, "max_tokens": 12}
    several = ask.answer(n=3, seed=5, **drawn)
    texts = [choice["message"]["content"] for choice in several["choices"]]
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert texts == [ask.text(seed=5 + index, **drawn) for index in range(3)]
    assert several["usage"]["completion_tokens"] > 12
    assert several["usage"]["prompt_tokens"] == ask.answer()["usage"]["prompt_tokens"]
    assert ask.refusal(n=2)[0] == "n", "greedy answers would be equal"
    assert ask.refusal(n=1_000_000_000)[0] == "n"


@pytest.mark.parameter("max_completion_tokens", "max_tokens")
def test_token_limits_cut_the_answer_and_the_newer_name_wins(ask):
    for fields, limit in (({"max_tokens": 5}, 5), ({"max_completion_tokens": 3, "max_tokens": 5}, 3)):
        answer = ask.answer(**fields)
        assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (limit, "length")
    assert ask.refusal(max_tokens=0)[0] == "max_tokens"
    assert ask.refusal(max_completion_tokens=1_000_000)[0] == "max_completion_tokens"


@pytest.mark.parameter("stream")
def test_a_stream_joins_to_the_plain_answer(ask):
    chunks = ask.chunks(max_tokens=24)
    assert joined(chunks) == ask.text(max_tokens=24)
    assert len(chunks) > 10
    assert ask.post(stream="false").headers["content-type"] == "application/json"


@pytest.mark.parameter("stream_options")
def test_usage_comes_last_or_with_every_chunk(ask):
    *chunks, last = ask.chunks(stream_options={"include_usage": True})
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8)
    assert {chunk["usage"] for chunk in chunks} == {None}
    running = ask.chunks(stream_options={"continuous_usage_stats": True}, return_token_ids=True)
    sent = accumulate(sum(len(choice.get("token_ids") or ()) for choice in chunk["choices"]) for chunk in running)
    assert [chunk["usage"]["completion_tokens"] for chunk in running] == list(sent), "as a busy machine joins tokens"
    assert running[-1]["usage"]["completion_tokens"] == 8
    silent = ask.chunks(stream_options={"continuous_usage_stats": True, "include_usage": False})
    assert not any("usage" in chunk for chunk in silent)
    assert ask.refusal(stream_options={"include_usage": True})[0] == "stream_options"
    assert ask.post(stream_options={}).status_code == 200


@pytest.mark.parameter("stream_interval")
def test_an_interval_gathers_tokens_into_chunks(ask):
    every, gathered = ask.chunks(max_tokens=17), ask.chunks(max_tokens=17, stream_interval=8)
    assert joined(gathered) == joined(every)
    texts = [chunk for chunk in gathered if chunk["choices"][0]["delta"].get("content")]
    assert len(texts) == 3, "the first token at once, then two times eight"
    assert ask.refusal(stream_interval=0)[0] == "stream_interval"


@pytest.mark.parameter("request_id")
def test_a_request_keeps_the_id_that_it_was_given(ask):
    response = ask.post(request_id="mine-1")
    assert (response.json()["id"], response.headers["x-request-id"]) == ("chatcmpl-mine-1", "mine-1")
    assert {chunk["id"] for chunk in ask.chunks(request_id="mine-2")} == {"chatcmpl-mine-2"}
    assert ask.refusal(request_id="a/b")[0] == "request_id"


# Order of service.


@contextmanager
def full_house(ask: Asker) -> Iterator[None]:
    """Occupy all four running places until the end of the block."""
    body = {"messages": QUESTION, "n": 4, "temperature": 1, "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with streaming(ask, body) as lines:
        next(line for line in lines if '"content":"' in line and '"content":""' not in line)
        yield


@contextmanager
def streaming(ask: Asker, body: dict[str, Any]) -> Iterator[Iterator[str]]:
    """Yield the lines of a stream; start once the request is admitted."""
    headers = {"Authorization": f"Bearer {ask.served.api_key}"}
    with httpx.stream(
        "POST", f"{ask.served.api_url}/chat/completions", json=body, headers=headers, timeout=120
    ) as response:
        assert response.status_code == 200, response.read()
        yield response.iter_lines()


def order_of_service(ask: Asker, *requests: dict[str, Any]) -> list[int]:
    """Return the indices of requests in the order of service; all wait in a full house, added in the given order."""
    served: list[int] = []

    def read(number: int, lines: Iterator[str]) -> None:
        next(line for line in lines if line.startswith("data: "))
        served.append(number)
        for _ in lines:
            pass

    with ExitStack() as streams:
        readers = []
        with full_house(ask):
            for number, fields in enumerate(requests):
                body = {
                    "messages": QUESTION,
                    "n": 4,
                    "temperature": 1,
                    "max_tokens": 12,
                    "ignore_eos": True,
                    "stream": True,
                    **fields,
                }
                lines = streams.enter_context(streaming(ask, body))
                readers.append(threading.Thread(target=read, args=(number, lines)))
                readers[-1].start()
            assert served == [], "they did not wait"
        for reader in readers:
            reader.join()
    return served


@pytest.mark.parameter("priority")
def test_a_lower_priority_number_is_served_first_and_ties_by_arrival(ask):
    assert order_of_service(ask, {"priority": 5}, {"priority": 0}, {"priority": 0}) == [1, 2, 0]
    assert ask.refusal(priority=-1)[0] == "priority"


@pytest.mark.parameter("service_tier")
def test_the_flex_tier_waits_for_the_others_and_the_answer_names_the_tier(ask):
    assert order_of_service(ask, {"service_tier": "flex"}, {"service_tier": "auto"}) == [1, 0]
    assert ask.answer(service_tier="flex")["service_tier"] == "flex"
    assert ask.answer(service_tier="priority")["service_tier"] == "default", "this key may not be earlier"
    assert "service_tier" not in ask.answer()
    assert ask.refusal(service_tier="gold")[0] == "service_tier"


@pytest.mark.parameter("prompt_cache_key")
def test_requests_of_one_cache_key_run_together_and_answer_the_same(ask):
    grouped = {"prompt_cache_key": "together"}
    assert order_of_service(ask, grouped, {}, grouped) == [0, 2, 1]
    assert ask.text(**grouped) == ask.text()
    assert ask.refusal(prompt_cache_key="x" * 257)[0] == "prompt_cache_key"
