"""The chunks of a stream: order, keys, and equality with the plain answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.errors import ApiError
from engine.api import (
    ChoiceFinished,
    Delta,
    FinishReason,
    Payload,
    PromptScored,
    RankedLogprob,
    TokenLogprob,
    ToolCallDelta,
)
from tests.chat.api.openai.heads import ChatStream, accumulate, answer, choices, deltas, events, finished, head, stream

ROLE = {"role": "assistant", "content": ""}
CALLS: list[Payload] = [
    Delta(0, (1,), "See", reasoning="hm", tool_calls=(ToolCallDelta(0, "id-a", "add"),)),
    Delta(0, (2, 3), tool_calls=(ToolCallDelta(0, arguments="{}"), ToolCallDelta(1, "id-b", "sub", '{"y"'))),
    finished(reason=FinishReason.TOOL_CALLS, tool_calls=(ToolCallDelta(1, arguments=":2}"),)),
]


def test_reasoning_content_and_calls_are_separate_chunks_in_order():
    assert deltas(stream(CALLS)) == [
        ROLE,
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"content": "See"},
        {"tool_calls": [{"index": 0, "id": "id-a", "type": "function", "function": {"name": "add", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 1, "id": "id-b", "type": "function", "function": {"name": "sub", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"y"'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": ":2}"}}]},
    ]


def test_the_last_chunk_has_the_last_delta_and_both_reasons():
    last = choices(stream([Delta(0, (1,), "a"), finished(text="b", stop_reason="END")]))[-1]
    assert last == {
        "index": 0,
        "delta": {"content": "b"},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": "END",
    }


def test_the_deprecated_form_streams_its_function_call():
    call = Delta(0, (1,), tool_calls=(ToolCallDelta(0, "i", "add", "{"),))
    end = finished(reason=FinishReason.TOOL_CALLS, tool_calls=(ToolCallDelta(0, arguments="}"),))
    chunks = stream([call, end], answers_function_call=True)
    assert deltas(chunks) == [
        ROLE,
        {"function_call": {"name": "add", "arguments": ""}},
        {"function_call": {"arguments": "{"}},
        {"function_call": {"arguments": "}"}},
    ]
    assert choices(chunks)[-1]["finish_reason"] == "function_call"


def test_excluded_reasoning_sends_no_chunk():
    chunks = stream(
        [Delta(0, (1,), reasoning="hm"), Delta(0, (2,), "x"), finished(reasoning="m")], includes_reasoning=False
    )
    assert deltas(chunks) == [ROLE, {"content": "x"}, {}]


def test_only_the_first_chunk_describes_the_prompt():
    scored = PromptScored(((), (RankedLogprob(5, -0.5, 3, "a"),)))
    payloads: list[Payload] = [scored, Delta(1, (1,), "a"), finished(0), finished(1)]
    first, *others = stream(payloads, num_choices=2, returns_token_ids=True, prompt_ids=(7, 8), prompt_text="\u2028hi")
    assert (first["prompt_token_ids"], first["prompt_text"]) == ([7, 8], "\u2028hi")
    assert first["prompt_logprobs"] == [None, {"5": {"logprob": -0.5, "rank": 3, "decoded_token": "a"}}]
    assert first["choices"][0]["delta"] == ROLE
    assert not any(name.startswith("prompt") for chunk in others for name in chunk)


def test_echo_chunks_follow_all_role_chunks():
    chunks = stream([Delta(0, (1,), "a"), finished(0), Delta(1, (1,), "b"), finished(1)], num_choices=2, echo="Once ")
    seen = [(choice["index"], choice["delta"]) for choice in choices(chunks)]
    assert seen[:4] == [(0, ROLE), (1, ROLE), (0, {"content": "Once "}), (1, {"content": "Once "})]
    assert [accumulate(chunks, index)["content"] for index in (0, 1)] == ["Once a", "Once b"]


def test_token_ids_are_complete_while_text_is_held_back():
    chunks = stream([Delta(0, (1,)), Delta(0, (2, 3), "ab"), finished()], returns_token_ids=True)
    assert [choice.get("token_ids") for choice in choices(chunks)] == [None, [1], [2, 3], None]


def test_a_step_without_text_sends_a_chunk_only_for_continuous_usage():
    payloads: list[Payload] = [Delta(0, (1,)), Delta(0, (2,), "a"), finished()]
    assert deltas(stream(payloads)) == [ROLE, {"content": "a"}, {}]
    running = stream(payloads, continuous_usage=True, include_usage=True)
    assert [chunk["usage"]["completion_tokens"] for chunk in running[:-1]] == [0, 1, 2, 2]


def test_continuous_usage_counts_the_choice_of_the_chunk():
    payloads: list[Payload] = [
        Delta(0, (1, 2), "a"),
        Delta(1, (3,), "b"),
        Delta(0, (4,), "c"),
        finished(0),
        finished(1),
    ]
    *chunks, last = stream(payloads, num_choices=2, continuous_usage=True, include_usage=True)
    counted = [(chunk["choices"][0]["index"], chunk["usage"]["completion_tokens"]) for chunk in chunks]
    assert counted == [(0, 0), (1, 0), (0, 2), (1, 1), (0, 3), (0, 3), (1, 1)]
    assert last["choices"] == []


def test_stream_interval_groups_tokens_except_the_first_and_last():
    payloads: list[Payload] = [Delta(0, (i,), str(i)) for i in range(9)]
    assert deltas(stream([*payloads, finished(text="!")], stream_interval=3)) == [
        ROLE,
        {"content": "0"},
        {"content": "123"},
        {"content": "456"},
        {"content": "78"},
        {"content": "!"},
    ]


def test_an_error_ends_the_stream_after_pending_text():
    writer = ChatStream(head(stream_interval=9))
    text = b"".join(map(writer.feed, events([Delta(0, (1,), "a"), Delta(0, (2,), "b")])))
    text += writer.error(ApiError("invalid_value", "no token is left", "allowed_token_ids"))
    *chunks, error, done, _ = text.decode().split("\n\n")
    assert json.loads(chunks[-1][6:])["choices"][0] == {
        "index": 0,
        "delta": {"content": "b"},
        "logprobs": None,
        "finish_reason": None,
    }
    assert json.loads(error[6:]) == {
        "error": {
            "message": "no token is left",
            "type": "invalid_request_error",
            "param": "allowed_token_ids",
            "code": "invalid_value",
        }
    }
    assert done == "data: [DONE]"


# Joined, a stream is the answer.

TEXTS = st.text(alphabet='ab"\\\n\u2028é😀', max_size=4)


@st.composite
def runs(draw: st.DrawFn) -> list[Payload]:
    """Return deltas of two choices in any order, each with reasoning, then text and calls, cut anywhere."""
    queues: list[list[Payload]] = []
    for choice in (0, 1):
        queue: list[Payload] = []
        num_calls = 0
        num_thoughts = draw(st.integers(0, 3))
        for step in range(draw(st.integers(0, 8))):
            ids = tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=3)))
            logprobs = tuple(TokenLogprob(i, -1.0, "t", b"t") for i in ids)
            calls = []
            if step >= num_thoughts and draw(st.booleans()):
                if num_calls == 0 or draw(st.booleans()):
                    calls.append(ToolCallDelta(num_calls, f"id{num_calls}", "f", draw(TEXTS)))
                    num_calls += 1
                calls.append(ToolCallDelta(num_calls - 1, arguments=draw(TEXTS)))
            reasoning = draw(TEXTS) if step < num_thoughts else ""
            queue.append(
                Delta(choice, ids, "" if step < num_thoughts else draw(TEXTS), logprobs, reasoning, tuple(calls))
            )
        queue.append(
            ChoiceFinished(
                choice, draw(st.sampled_from(FinishReason)), draw(st.sampled_from([None, 7, "x"])), draw(TEXTS)
            )
        )
        queues.append(queue)
    payloads: list[Payload] = []
    while any(queues):
        payloads.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return payloads


@given(runs(), st.integers(1, 7), st.booleans(), st.booleans(), st.sampled_from(["", "Once"]))
def test_the_joined_stream_equals_the_plain_answer(payloads, interval, includes_reasoning, has_ids, echo):
    fields: dict[str, Any] = {
        "num_choices": 2,
        "has_logprobs": True,
        "includes_reasoning": includes_reasoning,
        "returns_token_ids": has_ids,
    }
    plain = answer(payloads, echo=echo, **fields)
    chunks = stream(payloads, echo=echo, stream_interval=interval, **fields)
    for index, choice in enumerate(plain["choices"]):
        seen = accumulate(chunks, index)
        message = choice["message"]
        assert seen["role"] == "assistant"
        assert seen["content"] == (message["content"] or "")
        assert seen["reasoning"] == (message["reasoning"] or "")
        assert seen["calls"] == message.get("tool_calls", [])
        assert seen["token_ids"] == (choice["token_ids"] or [])
        assert seen["logprobs"] == choice["logprobs"]["content"]
        assert seen["finish"] == [choice["finish_reason"], choice["stop_reason"]]


@pytest.mark.parametrize("text", ["\n\ndata: [DONE]\n\n", "\u2028\u2029\x85", '"}]}', "event: x\nid: 5\nretry: 1"])
def test_text_calls_and_reasoning_cannot_form_a_frame(text):
    chunks = stream(
        [
            Delta(0, (1,), text, reasoning=text, tool_calls=(ToolCallDelta(0, text, text, text),)),
            finished(stop_reason=text),
        ]
    )
    seen = accumulate(chunks)
    assert (seen["content"], seen["reasoning"]) == (text, text)
    assert seen["calls"] == [{"id": text, "type": "function", "function": {"name": text, "arguments": text}}]
    assert seen["finish"] == ["stop", text]
