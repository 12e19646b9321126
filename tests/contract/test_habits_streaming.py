"""Habits of clients that read streams, items 1 to 11."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.habits import NAMED, TOOLS, Http

pytestmark = pytest.mark.live

FORCED = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 60}
SEVERAL = {"n": 2, "temperature": 1, "seed": 1}


@pytest.fixture(scope="module")
def http(lightcone: Any) -> Iterator[Http]:
    made = Http(lightcone)
    yield made
    made.close()


def shown_call(city: str) -> str:
    return f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>'


CHOSEN = {
    "messages": [
        *(
            {"role": role, "content": text}
            for city in ("Rome", "Oslo", "Rome")
            for role, text in (("user", f"Weather in {city}?"), ("assistant", shown_call(city)))
        ),
        {"role": "user", "content": "Weather in Oslo?"},
    ],
    "tools": TOOLS,
    "max_tokens": 60,
}
"""A conversation that shows how a tool is called, so that the model chooses to."""


def test_item_01_every_piece_of_a_call_has_an_integer_index(http):
    for fields in (FORCED, CHOSEN, {**FORCED, "tool_choice": NAMED, **SEVERAL}):
        stream = http.stream(**fields)
        for choice in range(fields.get("n", 1)):
            pieces = stream.calls(choice)
            assert pieces
            assert all(type(piece["index"]) is int for piece in pieces)


@pytest.mark.parametrize("fields", [FORCED, CHOSEN], ids=["required", "auto"])
def test_item_02_a_call_is_named_once_and_later_pieces_bring_arguments_alone(http, fields):
    first, *later = http.stream(**fields).calls()
    assert set(first) == {"index", "id", "type", "function"}
    assert (first["type"], set(first["function"])) == ("function", {"name", "arguments"})
    assert isinstance(first["function"]["arguments"], str)
    assert all(set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"} for piece in later)
    assert {piece["index"] for piece in (first, *later)} == {0}
    json.loads("".join(piece["function"]["arguments"] for piece in (first, *later)))


def test_item_03_the_role_comes_once_per_choice_and_first(http):
    for fields in ({}, SEVERAL, FORCED, CHOSEN):
        stream = http.stream(**fields)
        for index in range(fields.get("n", 1)):
            first, *later = stream.choices(index)
            assert first["delta"] == {"role": "assistant", "content": ""}
            assert all("role" not in choice["delta"] for choice in later)


def test_item_04_the_finish_reason_is_null_until_the_last_chunk_of_a_choice(http):
    for fields in ({}, SEVERAL, FORCED, CHOSEN):
        stream = http.stream(**fields)
        for index in range(fields.get("n", 1)):
            *early, last = [choice["finish_reason"] for choice in stream.choices(index)]
            assert early == [None] * len(early)
            assert isinstance(last, str)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 3, "ignore_eos": True}, "length"),
        ({"max_tokens": 8, "stop": [" ", "!", "."]}, "stop"),
        (FORCED, "tool_calls"),
        (CHOSEN, "tool_calls"),
        ({**FORCED, "tool_choice": NAMED}, "stop"),
        ({**FORCED, "tool_choice": NAMED, "max_tokens": 2}, "length"),
    ],
    ids=["length", "stop", "required", "auto", "named", "named and cut"],
)
def test_item_05_the_finish_reason_is_one_of_the_known_words(http, fields, reason):
    assert http.stream(**fields).choices()[-1]["finish_reason"] == reason
    assert http.choice(**fields)["finish_reason"] == reason


def test_item_06_usage_comes_when_asked_for_as_one_last_chunk_without_choices(http):
    *chunks, usage = http.stream(stream_options={"include_usage": True}).chunks
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    for options in (None, {}, {"include_usage": False}):
        chunks = http.stream(stream_options=options).chunks
        assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)
    running = http.stream(stream_options={"include_usage": True, "continuous_usage_stats": True}).chunks
    assert all(isinstance(chunk["usage"]["completion_tokens"], int) for chunk in running)
    assert running[-1]["usage"] == usage["usage"], "the last value counts"


KNOWN_TEXTS = {"role", "content", "reasoning", "reasoning_content"}


@pytest.mark.parametrize(
    "fields",
    [FORCED, {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}, {"echo": True}],
    ids=["calls", "tokens", "echo"],
)
def test_item_07_no_list_without_an_index_and_no_number_inside_delta(http, fields):
    stream = http.stream(**fields)
    for choice in stream.choices():
        for name, value in choice["delta"].items():
            if isinstance(value, list):
                assert all(type(item["index"]) is int for item in value)
            else:
                assert name in KNOWN_TEXTS
                assert value is None or isinstance(value, str)
    if "return_token_ids" in fields:
        assert stream.chunks[0]["prompt_token_ids"]
        assert any(choice.get("token_ids") for choice in stream.choices())


def test_item_08_frames_are_one_line_of_ascii_each_and_nothing_else(http):
    """Also for characters that split lines in some clients, which the echo contains."""
    odd = "\u2028 \u2029 \u0085 \n\ndata: [DONE]\n\nevent: x é"
    last = [{"role": "assistant", "content": odd}]
    stream = http.stream(messages=[*last], add_generation_prompt=False, continue_final_message=True, echo=True)
    assert stream.response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.response.content.isascii()
    assert b"\r" not in stream.response.content
    *frames, end = stream.text.split("\n\n")
    assert end == ""
    for frame in frames:
        frame = frame.removeprefix(": ping\n")
        assert "\n" not in frame
        assert frame.startswith("data: ")
        assert not frame.startswith("data:  ")
    assert odd in "".join(choice["delta"].get("content") or "" for choice in stream.choices())


def test_item_09_every_data_value_but_the_end_is_a_chunk(http):
    for chunk in http.stream(stream_options={"include_usage": True}).chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert isinstance(chunk["choices"], list)


def test_item_10_streams_are_neither_buffered_nor_compressed(http):
    response = http.post(stream=True, headers={"Accept-Encoding": "gzip, br"})
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in response.headers
    assert "content-length" not in response.headers


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"temperature": 9}, 400, "invalid_value"),
        ({"model": "gpt-9"}, 404, "model_not_found"),
        ({"messages": [{"role": "user", "content": "word " * 20_000}]}, 400, "context_length_exceeded"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, 400, "invalid_value"),
        ({"allowed_token_ids": [10**9]}, 400, "invalid_value"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_item_11_a_failure_before_the_first_token_is_a_plain_status(http, fields, status, code):
    response = http.post(stream=True, **fields)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/json")
    assert response.json()["error"]["code"] == code
