"""Streamed answers: the order of events, and equality with the plain answer for any split."""

import json
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from chat.api.anthropic.answer import MessageAnswer
from chat.api.anthropic.stream import MessageStream
from chat.api.chat_format.arguments import input_read
from chat.api.chat_format.stream import join_deltas
from engine.api import ChoiceFinished, Delta, ErrorCode, Failed, FinishReason, ToolCallDelta
from tests.chat.api.anthropic.shapes import events, frames, head, joined, post
from tests.chat.api.conftest import ADMITTED, completed, delta, finished


async def test_a_stream_is_the_events_in_the_official_order(api, scripted):
    response = await post(api, stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    start, ping, *middle, end, stop = frames(response.text)
    assert start["message"] == {
        "id": "msg_" + response.headers["request-id"],
        "type": "message",
        "role": "assistant",
        "model": "org/tiny",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
            "output_tokens_details": {"thinking_tokens": 0},
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "service_tier": "standard",
        },
    }
    assert (ping, stop) == ({"type": "ping"}, {"type": "message_stop"})
    assert middle == [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
    ]
    assert end == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 2,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    assert scripted.readers[0].num_left == 1


async def test_thinking_blocks_are_signed_before_their_end(api, scripted):
    scripted.script = [ADMITTED, Delta(0, (1,), reasoning="so"), delta("x"), finished(), completed()]
    _, _, start, thought, signature, stop, *_ = frames(
        (await post(api, stream=True, thinking={"type": "adaptive"})).text
    )
    assert start["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert thought["delta"] == {"type": "thinking_delta", "thinking": "so"}
    assert (signature["delta"]["type"], len(signature["delta"]["signature"])) == ("signature_delta", 44)
    assert stop == {"type": "content_block_stop", "index": 0}


async def test_a_call_starts_with_an_empty_input_and_grows_as_json_text(api, scripted):
    call = (
        (ToolCallDelta(0, "c", "weather", ""),),
        (ToolCallDelta(0, arguments='{"city":'),),
        (ToolCallDelta(0, arguments=' "Oslo"}'),),
    )
    scripted.script = [
        ADMITTED,
        *(Delta(0, (1,), tool_calls=pieces) for pieces in call),
        ChoiceFinished(0, FinishReason.TOOL_CALLS),
        completed(),
    ]
    _, _, start, *pieces, _, end, _ = frames((await post(api, stream=True)).text)
    assert start["content_block"] == {"type": "tool_use", "id": "c", "name": "weather", "input": {}}
    assert [piece["delta"] for piece in pieces] == [
        {"type": "input_json_delta", "partial_json": '{"city":'},
        {"type": "input_json_delta", "partial_json": ' "Oslo"}'},
    ]
    assert end["delta"]["stop_reason"] == "tool_use"


async def test_an_answer_without_text_starts_and_ends(api, scripted):
    scripted.script = [ADMITTED, finished(), completed()]
    kinds = [value["type"] for value in frames((await post(api, stream=True)).text)]
    assert kinds == ["message_start", "ping", "message_delta", "message_stop"]


async def test_a_failure_after_the_first_byte_is_one_error_event_and_the_end(api, scripted):
    scripted.script = [ADMITTED, delta("x"), Failed(ErrorCode.ENGINE_ERROR, "The engine failed.")]
    response = await post(api, stream=True)
    *_, last = frames(response.text)
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "The engine failed.", "code": "engine_error", "param": None},
        "request_id": response.headers["request-id"],
    }
    assert scripted.readers[0].num_left == 1


async def test_a_late_refusal_names_the_sent_field(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("x"),
        Failed(ErrorCode.INVALID_VALUE, "response_format leaves no token", param="response_format"),
    ]
    form = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    *_, last = frames((await post(api, stream=True, output_config=form)).text)
    assert last["error"]["type"] == "invalid_request_error"
    assert last["error"]["param"] == "output_config.format"
    assert last["error"]["message"] == "output_config.format leaves no token"


async def test_a_defect_while_streaming_reveals_no_details(api, scripted):
    scripted.script = [ADMITTED, delta("x"), RuntimeError("secret at 0x1234")]
    text = (await post(api, stream=True)).text
    assert "secret" not in text
    assert frames(text)[-1]["error"]["type"] == "api_error"


async def test_silence_gives_a_ping_comment(api, scripted):
    scripted.script = [ADMITTED, None, delta("x"), None, finished(), completed()]
    text = (await post(api, stream=True)).text
    assert text.split("\n").count(": ping") == 2
    assert joined(frames(text)) == [{"type": "text", "text": "x"}]


async def test_output_that_imitates_the_transport_stays_inside_one_json_string(api, scripted):
    text = '\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n\u2028\u2029\x85\\'
    scripted.script = [ADMITTED, delta(text), finished(), completed()]
    response = await post(api, stream=True)
    assert response.text.isascii()
    assert joined(frames(response.text))[0]["text"] == text


async def test_pings_can_be_switched_off(api, scripted, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, sse_keep_alive=0)
    scripted.script = [ADMITTED, None, delta("x"), finished(), completed()]
    assert ": ping" not in (await post(api, stream=True)).text.split("\n")


WORDS = st.text(min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(
    WORDS, st.one_of(WORDS, st.integers(-(2**53), 2**53), st.booleans(), st.lists(WORDS, max_size=2)), max_size=3
)
SEGMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("reasoning"), WORDS),
        st.tuples(st.just("text"), WORDS),
        st.tuples(st.just("call"), ARGUMENTS.map(json.dumps)),
    ),
    max_size=5,
)


def as_deltas(segments, cut) -> list[Delta]:
    """Return each segment as deltas, one per piece that `cut` makes of its text."""
    deltas, num_calls = [], 0
    for kind, text in segments:
        if kind == "call":
            deltas.append(Delta(0, (1,), tool_calls=(ToolCallDelta(num_calls, f"id{num_calls}", "f"),)))
            deltas += [Delta(0, (1,), tool_calls=(ToolCallDelta(num_calls, arguments=piece),)) for piece in cut(text)]
            num_calls += 1
        else:
            field = "reasoning" if kind == "reasoning" else "text"
            deltas += [Delta(0, (1,), **{field: piece}) for piece in cut(text)]
    return deltas


@given(st.data(), SEGMENTS, st.booleans())
def test_any_split_of_the_deltas_gives_the_same_blocks(data, segments, shows_thinking):
    def cut(text):
        places = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=4)) | {0, len(text)})
        return [text[start:end] for start, end in zip(places, places[1:], strict=False)]

    about = head(includes_reasoning=shows_thinking)
    ending = [ChoiceFinished(0, FinishReason.STOP), completed()]
    whole, whole_stream = MessageAnswer(about), MessageStream(about)
    for event in events(*as_deltas(segments, lambda text: [text]), *ending):
        whole.feed(event)
    deltas = as_deltas(segments, cut)
    if data.draw(st.booleans()):
        deltas = join_deltas(deltas)
    text = b"".join(map(whole_stream.feed, events(*deltas, *ending))).decode()
    blocks = []
    for block in joined(frames(text)):
        arguments = block.pop("json", None)
        blocks.append(block if arguments is None else block | {"input": input_read(arguments)})
    assert blocks == json.loads(whole.body())["content"]
