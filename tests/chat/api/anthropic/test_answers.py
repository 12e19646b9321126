"""Plain answers: blocks, stop reasons and usage."""

import json

import pytest

from chat.api.anthropic.answer import MessageAnswer
from engine.api import ChoiceFinished, Delta, FinishReason, ToolCallDelta
from tests.chat.api.anthropic.shapes import events, frames, head, post
from tests.chat.api.conftest import ADMITTED, completed, delta, finished

ON = {"type": "adaptive"}


async def test_an_answer_is_a_message_with_a_text_block(api, scripted):
    response = await post(api)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert response.json() == {
        "id": "msg_" + response.headers["request-id"],
        "type": "message",
        "role": "assistant",
        "model": "org/tiny",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 2,
            "output_tokens_details": {"thinking_tokens": 0},
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "service_tier": "standard",
        },
    }
    assert scripted.readers[0].num_left == 1


@pytest.mark.parametrize(
    ("reason", "stopped_by", "stop_reason", "sequence"),
    [
        (FinishReason.STOP, None, "end_turn", None),
        (FinishReason.STOP, 7, "end_turn", None),
        (FinishReason.STOP, "END", "stop_sequence", "END"),
        (FinishReason.LENGTH, None, "max_tokens", None),
    ],
)
async def test_stop_reasons_are_mapped(api, scripted, reason, stopped_by, stop_reason, sequence):
    scripted.script = [ADMITTED, delta("x"), finished(reason=reason, stop_reason=stopped_by), completed()]
    body = (await post(api)).json()
    assert (body["stop_reason"], body["stop_sequence"]) == (stop_reason, sequence)


def answer(*payloads, **fields):
    writer = MessageAnswer(head(**fields))
    for event in events(*payloads):
        writer.feed(event)
    return json.loads(writer.body())


def test_thinking_text_and_calls_are_blocks_in_order():
    body = answer(
        Delta(0, (1,), reasoning="so"),
        Delta(0, (2,), "I look.", tool_calls=(ToolCallDelta(0, "c0", "weather", '{"city": '),)),
        Delta(0, (3,), tool_calls=(ToolCallDelta(0, arguments='"Oslo"}'), ToolCallDelta(1, "c1", "now"))),
        ChoiceFinished(0, FinishReason.TOOL_CALLS),
        completed(),
    )
    thought, text, *calls = body["content"]
    assert (thought["type"], thought["thinking"], text["text"]) == ("thinking", "so", "I look.")
    assert len(thought["signature"]) == 44
    assert calls == [
        {"type": "tool_use", "id": "c0", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "c1", "name": "now", "input": {}},
    ]
    assert body["stop_reason"] == "tool_use"


def test_a_named_tool_call_has_stop_reason_tool_use():
    """The engine reports such an answer as stopped, but clients expect `tool_use`."""
    body = answer(
        Delta(0, (1,), tool_calls=(ToolCallDelta(0, "c", "f", "{}"),)),
        ChoiceFinished(0, FinishReason.STOP),
        completed(),
    )
    assert body["stop_reason"] == "tool_use"


def test_a_call_cut_by_the_limit_keeps_complete_arguments():
    cut = Delta(0, (1,), tool_calls=(ToolCallDelta(0, "c", "f", '{"a": 1, "b": "lo'),))
    body = answer(cut, ChoiceFinished(0, FinishReason.LENGTH), completed())
    assert (body["content"][0]["input"], body["stop_reason"]) == ({"a": 1}, "max_tokens")


def test_an_answer_without_text_has_no_blocks():
    assert answer(ChoiceFinished(0, FinishReason.STOP), completed())["content"] == []


@pytest.mark.parametrize(
    ("thinking", "num_thoughts"),
    [(ON, 1), (None, 0), ({"type": "disabled"}, 0), ({**ON, "display": "omitted"}, 0)],
    ids=str,
)
async def test_thinking_blocks_are_returned_only_if_requested(api, scripted, thinking, num_thoughts):
    """Most programs read the first block as text, so that a thinking block there would break them."""
    scripted.script = [ADMITTED, Delta(0, (1,), reasoning="hm"), delta("x"), finished(), completed()]
    content = (await post(api, **({"thinking": thinking} if thinking else {}))).json()["content"]
    assert [block["type"] for block in content] == ["thinking"] * num_thoughts + ["text"]


async def test_the_used_service_tier_is_returned(api):
    assert (await post(api, service_tier="auto")).json()["usage"]["service_tier"] == "standard", (
        "the key may not have priority"
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [{"previous_message_id": "msg_1"}, {}, None], ids=str)
async def test_cache_diagnostics_are_unavailable_if_requested(api, asked, stream):
    response = await post(api, diagnostics=asked, stream=stream)
    body = frames(response.text)[0]["message"] if stream else response.json()
    assert body.get("diagnostics") == (None if asked is None else {"cache_miss_reason": {"type": "unavailable"}})


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
@pytest.mark.parametrize("depth", [200, 249, 250, 251, 252, 253, 1_000, 1_100])
def test_arguments_of_any_depth_can_be_written(opening, closing, depth):
    """JSON is read to a depth of 1024 but written to 254: arguments between these depths gave a 500."""
    arguments = opening * depth + "1" + closing * depth
    called = Delta(0, (1,), tool_calls=(ToolCallDelta(0, "c", "f", arguments),))
    value = answer(called, ChoiceFinished(0, FinishReason.STOP), completed())["content"][0]["input"]
    if depth == 200:
        whole = json.loads(arguments)
        assert value == (whole if isinstance(whole, dict) else {"input": whole})
    elif depth == 1_000:
        assert value == {"input": arguments}
