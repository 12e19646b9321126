"""Streamed completions: order, keys and framing, and failures after the first byte."""

import json
from dataclasses import replace

import pytest

from chat.api.answering import streaming
from chat.generation.waiting import Waiting
from engine.api import EngineUnavailable, ErrorCode, Failed, TokenLogprob
from tests.chat.api.conftest import ADMITTED, HELLO, chat, completed, delta, finished, frames, post


async def test_a_stream_has_role_deltas_finish_and_done(api, scripted):
    response = await post(api, stream=True)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    *chunks, done = frames(response.text)
    assert done == "[DONE]"
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "Hel"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {"content": "lo"}, "logprobs": None, "finish_reason": None},
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": None},
    ]
    heads = [
        {name: chunk[name] for name in ("id", "object", "created", "model", "system_fingerprint")} for chunk in chunks
    ]
    assert all(head == heads[0] for head in heads)
    assert heads[0]["id"] == "chatcmpl-" + response.headers["x-request-id"]
    assert heads[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in chunk for chunk in chunks)
    assert scripted.readers[0].num_left == 1


async def test_all_role_chunks_come_first_then_choices_interleave_and_each_finishes_once(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("b", 1),
        delta("a", 0),
        finished(1),
        delta("c", 0),
        finished(0, text="d"),
        completed(),
    ]
    *chunks, _ = frames((await post(api, stream=True, n=2)).text)
    seen = [
        (chunk["choices"][0]["index"], chunk["choices"][0]["delta"], chunk["choices"][0]["finish_reason"])
        for chunk in chunks
    ]
    assert seen == [
        (0, {"role": "assistant", "content": ""}, None),
        (1, {"role": "assistant", "content": ""}, None),
        (1, {"content": "b"}, None),
        (0, {"content": "a"}, None),
        (1, {}, "stop"),
        (0, {"content": "c"}, None),
        (0, {"content": "d"}, "stop"),
    ]


async def test_usage_comes_once_last_with_no_choices_and_is_null_before(api, scripted):
    *chunks, done = frames((await post(api, stream=True, stream_options={"include_usage": True})).text)
    assert done == "[DONE]"
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 5


async def test_running_usage_counts_the_choices_own_tokens(api, scripted):
    *chunks, _ = frames((await post(api, stream=True, stream_options={"continuous_usage_stats": True})).text)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 2, 2]
    assert all(chunk["usage"]["prompt_tokens"] == 3 for chunk in chunks)


async def test_a_step_without_visible_text_sends_nothing(api, scripted):
    scripted.script = [ADMITTED, delta(""), delta("x"), finished(), completed()]
    *chunks, _ = frames((await post(api, stream=True)).text)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "x"},
        {},
    ]


async def test_logprobs_stream_with_their_tokens_even_when_text_is_held_back(api, scripted):
    entry = TokenLogprob(5, -0.5, "x", b"x")
    scripted.script = [ADMITTED, delta("", logprobs=(entry,)), finished(text="x"), completed()]
    *chunks, _ = frames((await post(api, stream=True, logprobs=True)).text)
    assert chunks[1]["choices"][0]["logprobs"]["content"][0]["token"] == "x"


async def test_output_that_imitates_the_transport_stays_inside_one_json_string(api, scripted):
    text = '\n\nevent: execute\ndata: [DONE]\n\n"\u2028\u2029\x85\\'
    scripted.script = [ADMITTED, delta(text), finished(), completed()]
    response = await post(api, stream=True)
    assert response.text.isascii()
    *chunks, done = frames(response.text)
    assert chunks[1]["choices"][0]["delta"]["content"] == text
    assert done == "[DONE]"
    assert response.text.count("[DONE]") == 2


async def test_silence_gives_a_ping_comment_with_one_newline(api, scripted):
    scripted.script = [ADMITTED, None, delta("x"), None, finished(), completed()]
    text = (await post(api, stream=True)).text
    assert text.startswith(": ping\ndata: ")
    assert text.count(": ping\n") == 2
    assert ": ping\n\n" not in text
    assert len(frames(text)) == 4


async def test_a_failure_after_the_first_byte_is_one_error_frame_then_done(api, scripted):
    scripted.script = [ADMITTED, delta("x"), Failed(ErrorCode.ENGINE_ERROR, "The engine failed.")]
    response = await post(api, stream=True, stream_options={"include_usage": True})
    *chunks, error, done = frames(response.text)
    assert response.status_code == 200
    assert error == {
        "error": {"message": "The engine failed.", "type": "server_error", "param": None, "code": "engine_error"}
    }
    assert done == "[DONE]"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert scripted.readers[0].num_left == 1


async def test_a_defect_while_streaming_reveals_no_details(api, scripted):
    scripted.script = [ADMITTED, delta("x"), RuntimeError("secret at 0x1234")]
    text = (await post(api, stream=True)).text
    assert "secret" not in text
    assert frames(text)[-2]["error"]["code"] == "internal_error"


async def test_pings_can_be_switched_off(api, scripted, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, sse_keep_alive=0)
    scripted.script = [ADMITTED, None, delta("x"), None, finished(), completed()]
    assert ": ping" not in (await post(api, stream=True)).text


async def test_invisible_events_do_not_delay_pings(api, scripted, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, sse_keep_alive=1e-9)
    scripted.script = [ADMITTED, delta("a"), delta(""), delta("x"), finished(), completed()]
    text = (await post(api, stream=True)).text
    assert text.count(": ping\n") == 1, "for the token that shows nothing"


async def test_a_late_lack_of_allowed_tokens_is_an_error_frame_with_the_field(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("x"),
        Failed(ErrorCode.INVALID_VALUE, "allowed_token_ids leaves no token", param="allowed_token_ids"),
    ]
    *_, error, done = frames((await post(api, stream=True, allowed_token_ids=[7])).text)
    assert (error["error"]["code"], error["error"]["param"], done) == ("invalid_value", "allowed_token_ids", "[DONE]")


async def test_a_stream_that_waits_for_its_first_token_loses_nothing(api, scripted):
    for script in (HELLO, [ADMITTED, None, *HELLO[1:]]):
        scripted.script = list(script)
        *chunks, _ = frames((await post(api, stream=True, allowed_token_ids=[7])).text)
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello"


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_stream_says_what_it_waits_for_only_to_clients_that_ask(api, scripted, monkeypatch, route, is_asked):
    async def watch(reader, **_):
        for fraction in (0.25, 0.25, 0.5):
            yield Waiting("loading", "weights", fraction, 2)

    monkeypatch.setattr(streaming, "waiting_watch", watch)
    headers = {"X-Lightcone-Progress": "1"} if is_asked else {}
    prompt = chat() if "chat" in route else {"prompt": "hi"}
    response = await api.post(route, json={**prompt, "stream": True}, headers=headers)
    comments = [line for line in response.text.splitlines() if line.startswith(": progress ")]
    seen = [json.loads(line.removeprefix(": progress ")) for line in comments]
    facts = {"state": "loading", "phase": "weights", "num_before": 2}
    assert seen == ([facts | {"fraction": 0.25}, facts | {"fraction": 0.5}] if is_asked else [])
    rest = "\n".join(line for line in response.text.splitlines() if line not in comments)
    assert frames(rest)[-1] == "[DONE]"
    assert "Hel" in rest


async def test_a_refusal_while_a_stream_waits_is_an_error_event_for_clients_that_asked(api, scripted, monkeypatch):
    async def watch(reader, **_):
        yield Waiting("loading", "weights", 0.25, 0)
        raise EngineUnavailable(ErrorCode.MODEL_LOAD_FAILED, "It cannot be loaded.")

    monkeypatch.setattr(streaming, "waiting_watch", watch)
    body = chat(stream=True)
    response = await api.post("/v1/chat/completions", json=body, headers={"X-Lightcone-Progress": "1"})
    assert response.status_code == 200
    [error, done] = frames("\n".join(response.text.splitlines()[1:]))
    assert (error["error"]["code"], done) == ("model_load_failed", "[DONE]")
    assert scripted.readers[0].num_left == 1
