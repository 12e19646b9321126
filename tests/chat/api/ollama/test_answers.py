"""Answers, whole and line by line: their members, times, calls and thoughts, and equality for any split."""

import json
from datetime import datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chat.api.chat_format.arguments import input_read
from chat.api.ollama.lines import LineStream, WholeAnswer, chat_content, generated_content
from chat.errors import ApiError
from engine.api import (
    ChoiceFinished,
    Completed,
    Delta,
    ErrorCode,
    Failed,
    FinishReason,
    Outcome,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Usage,
)
from tests.chat.api.anthropic.test_streams import SEGMENTS, as_deltas
from tests.chat.api.conftest import ADMITTED, completed, delta, finished
from tests.chat.api.ollama.shapes import chat, events, generate, head, lines, written

TIMED = Completed(Outcome.FINISHED, Usage(3, 1, 2), Timings(10.0, 10.5, 10.75, 12.0))
TIMES = {
    "total_duration": 2_000_000_000,
    "load_duration": 500_000_000,
    "prompt_eval_duration": 250_000_000,
    "eval_duration": 1_250_000_000,
    "prompt_eval_count": 3,
    "eval_count": 2,
}
PREFIX = {"model": "org/tiny"}


async def test_a_chat_streams_lines_unless_it_says_otherwise(api, scripted):
    scripted.script = [ADMITTED, delta("Hel"), delta("lo"), finished(), TIMED]
    response = await chat(api, stream=None)
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    *pieces, end = map(written, lines(response.text))
    assert pieces == [
        {**PREFIX, "message": {"role": "assistant", "content": text}, "done": False} for text in ("Hel", "lo")
    ]
    assert end == {
        **PREFIX,
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        **TIMES,
    }
    assert scripted.readers[0].num_left == 1


async def test_a_whole_chat_is_one_object_with_a_time(api, scripted):
    scripted.script = [ADMITTED, delta("Hel"), delta("lo"), finished(reason=FinishReason.LENGTH), TIMED]
    response = await chat(api)
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["created_at"].endswith("Z")
    assert datetime.fromisoformat(body["created_at"]).utcoffset().total_seconds() == 0
    message = {"role": "assistant", "content": "Hello"}
    assert written(body) == {**PREFIX, "message": message, "done": True, "done_reason": "length", **TIMES}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_generated_text_is_a_response(api, scripted, is_stream):
    scripted.script = [ADMITTED, Delta(0, (1,), reasoning="so"), delta("Hi"), finished(), TIMED]
    response = await generate(api, stream=is_stream)
    if is_stream:
        thought, text, end = map(written, lines(response.text))
        assert thought == {**PREFIX, "response": "", "thinking": "so", "done": False}
        assert text == {**PREFIX, "response": "Hi", "done": False}
        assert end == {**PREFIX, "response": "", "done": True, "done_reason": "stop", **TIMES}
    else:
        whole = {**PREFIX, "response": "Hi", "thinking": "so", "done": True, "done_reason": "stop", **TIMES}
        assert written(response.json()) == whole


async def test_times_that_are_not_known_are_zero(api, scripted):
    body = (await chat(api)).json()
    assert {body[name] for name in TIMES if name.endswith("duration")} == {0}


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_is_whole_and_its_arguments_are_an_object(api, scripted, is_stream):
    pieces = (
        ToolCallDelta(0, "c1", "weather", ""),
        ToolCallDelta(0, arguments='{"city":'),
        ToolCallDelta(0, arguments=' "Oslo"}'),
        ToolCallDelta(1, "c2", "now", "{}"),
    )
    scripted.script = [
        ADMITTED,
        *(Delta(0, (1,), tool_calls=(piece,)) for piece in pieces),
        ChoiceFinished(0, FinishReason.TOOL_CALLS),
        TIMED,
    ]
    response = await chat(api, stream=is_stream)
    calls = [
        {"id": "c1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}},
        {"id": "c2", "function": {"index": 1, "name": "now", "arguments": {}}},
    ]
    if is_stream:
        *found, end = lines(response.text)
        assert [piece["message"]["tool_calls"] for piece in found] == [[calls[0]], [calls[1]]]
        assert end["done_reason"] == "stop"
    else:
        assert response.json()["message"] == {"role": "assistant", "content": "", "tool_calls": calls}


async def test_log_probabilities_stand_beside_the_text(api, scripted):
    token = TokenLogprob(5, -0.5, "a", b"a", (TopLogprob(6, -1.5, "b", b"b"),))
    scripted.script = [ADMITTED, delta("a", logprobs=(token,)), finished(), TIMED]
    entry = {
        "token": "a",
        "logprob": -0.5,
        "bytes": [97],
        "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": [98]}],
    }
    assert (await chat(api, logprobs=True, top_logprobs=1)).json()["logprobs"] == [entry]
    scripted.script = [ADMITTED, delta("a", logprobs=(token,)), finished(), TIMED]
    piece, _ = lines((await chat(api, logprobs=True, top_logprobs=1, stream=True)).text)
    assert piece["logprobs"] == [entry]


async def test_thoughts_are_left_out_where_thinking_is_off(api, scripted):
    scripted.script = [ADMITTED, Delta(0, (1,), reasoning="so"), delta("Hi"), finished(), TIMED]
    assert (await chat(api, think=False)).json()["message"] == {"role": "assistant", "content": "Hi"}


async def test_a_silence_gives_a_piece_without_content(api, scripted):
    scripted.script = [ADMITTED, None, delta("x"), finished(), TIMED]
    silent, piece, _ = map(written, lines((await chat(api, stream=True)).text))
    assert silent == {**PREFIX, "message": {"role": "assistant", "content": ""}, "done": False}
    assert piece["message"]["content"] == "x"


async def test_a_failure_after_the_first_line_is_the_last_one(api, scripted):
    scripted.script = [ADMITTED, delta("x"), Failed(ErrorCode.ENGINE_ERROR, "The engine failed.")]
    *_, last = lines((await chat(api, stream=True)).text)
    assert last == {"error": "The engine failed."}
    assert scripted.readers[0].num_left == 1


async def test_a_late_refusal_names_the_sent_field(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("x"),
        Failed(ErrorCode.INVALID_VALUE, "response_format leaves no token", param="response_format"),
    ]
    assert lines((await chat(api, stream=True, format="json")).text)[-1] == {"error": "format leaves no token"}


async def test_text_that_imitates_lines_stays_in_its_string(api, scripted):
    text = '\n{"done":true}\n\u2028\u2029\x85\\'
    scripted.script = [ADMITTED, delta(text), finished(), TIMED]
    assert lines((await chat(api, stream=True)).text)[0]["message"]["content"] == text


@given(st.data(), SEGMENTS, st.booleans())
def test_any_split_of_the_deltas_gives_the_same_answer(data, segments, shows_thinking):
    def cut(text):
        places = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=4)) | {0, len(text)})
        return [text[start:end] for start, end in zip(places, places[1:], strict=False)]

    about = head(includes_reasoning=shows_thinking)
    ending = [ChoiceFinished(0, FinishReason.STOP), completed()]
    for content in (chat_content, generated_content):
        whole, stream = WholeAnswer(about, content), LineStream(about, content)
        for event in events(*as_deltas(segments, lambda text: [text]), *ending):
            whole.feed(event)
        pieces = lines(b"".join(map(stream.feed, events(*as_deltas(segments, cut), *ending))).decode())
        assert joined(pieces) == parts(json.loads(whole.body()))


def parts(value):
    message = value.get("message", value)
    text = message["content"] if "content" in message else message["response"]
    return text, message.get("thinking", ""), message.get("tool_calls", [])


def joined(pieces):
    texts, thoughts, calls = zip(*map(parts, pieces), strict=True)
    return "".join(texts), "".join(thoughts), [call for some in calls for call in some]


def test_arguments_that_break_off_are_read_as_far_as_they_are_complete():
    whole = WholeAnswer(head(), chat_content)
    cut = '{"city": "Oslo", "unit": "cel'
    for event in events(
        Delta(0, (1,), tool_calls=(ToolCallDelta(0, "c", "f", cut),)),
        ChoiceFinished(0, FinishReason.LENGTH),
        completed(),
    ):
        whole.feed(event)
    (call,) = json.loads(whole.body())["message"]["tool_calls"]
    assert call["function"]["arguments"] == input_read(cut) == {"city": "Oslo"}


def test_the_error_of_a_stream_is_a_line():
    assert LineStream(head(), chat_content).error(ApiError("engine_error", "No.")) == b'{"error":"No."}\n'
