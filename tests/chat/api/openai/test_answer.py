"""The answer object: reasoning, calls, prompts, ids and nulls."""

from __future__ import annotations

import json

import pytest

from engine.api import (
    Completed,
    Delta,
    FinishReason,
    Outcome,
    PromptScored,
    RankedLogprob,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    TopLogprob,
    Usage,
)
from tests.chat.api.openai.heads import ChatAnswer, answer, events, finished, head

CALLS = [
    Delta(0, (1,), tool_calls=(ToolCallDelta(0, "id-a", "add"),)),
    Delta(
        0,
        (2, 3),
        tool_calls=(
            ToolCallDelta(0, arguments='{"x"'),
            ToolCallDelta(0, arguments=":1}"),
            ToolCallDelta(1, "id-b", "sub", "{"),
        ),
    ),
    finished(reason=FinishReason.TOOL_CALLS, tool_calls=(ToolCallDelta(1, arguments="}"),)),
]


def message(payloads, **fields):
    return answer(payloads, **fields)["choices"][0]["message"]


def test_reasoning_has_both_names_before_the_content():
    shown = message(
        [Delta(0, (1,), reasoning="I think"), Delta(0, (2,), "so", reasoning=", "), finished(text=".", reasoning="")]
    )
    assert (shown["reasoning"], shown["reasoning_content"], shown["content"]) == ("I think, ", "I think, ", "so.")


def test_an_answer_with_reasoning_only_has_null_content():
    shown = message([Delta(0, (1,), reasoning="hm"), finished(reason=FinishReason.LENGTH)])
    assert (shown["reasoning"], shown["content"]) == ("hm", None)


def test_excluded_reasoning_is_removed_and_missing_content_is_null():
    shown = message([Delta(0, (1,), reasoning="hm"), finished()], includes_reasoning=False)
    assert (shown["reasoning"], shown["reasoning_content"], shown["content"]) == (None, None, None)


def test_an_empty_answer_has_an_empty_content():
    shown = message([Delta(0, (1,)), finished()])
    assert (shown["content"], shown["reasoning"]) == ("", None)


def test_calls_are_whole_and_content_is_null():
    (choice,) = answer(CALLS)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["function_call"] is None
    assert choice["message"]["tool_calls"] == [
        {"id": "id-a", "type": "function", "function": {"name": "add", "arguments": '{"x":1}'}},
        {"id": "id-b", "type": "function", "function": {"name": "sub", "arguments": "{}"}},
    ]


def test_without_calls_there_is_no_tool_calls_key():
    assert "tool_calls" not in message([Delta(0, (1,), "x"), finished()])


def test_the_text_before_a_call_is_content():
    assert message([Delta(0, (1,), "Let me see."), *CALLS])["content"] == "Let me see."


@pytest.mark.parametrize(("reason", "word"), [(FinishReason.TOOL_CALLS, "function_call"), (FinishReason.STOP, "stop")])
def test_the_deprecated_form_has_one_function_call_and_its_finish_reason(reason, word):
    call = Delta(0, (1,), tool_calls=(ToolCallDelta(0, "i", "add", "{}"),))
    (choice,) = answer([call, finished(reason=reason)], answers_function_call=True)["choices"]
    assert choice["message"]["function_call"] == {"name": "add", "arguments": "{}"}
    assert "tool_calls" not in choice["message"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, word)


def test_the_echo_goes_before_every_choice():
    body = answer([Delta(1, (1,), "b"), Delta(0, (2,), "a"), finished(0), finished(1)], num_choices=2, echo="Once ")
    assert [choice["message"]["content"] for choice in body["choices"]] == ["Once a", "Once b"]


def test_token_ids_and_prompt_are_returned_if_requested():
    payloads = [Delta(0, (1, 2)), Delta(0, (3,), "x"), finished()]
    body = answer(payloads, returns_token_ids=True, prompt_ids=(7, 8), prompt_text="<s>hi")
    assert body["choices"][0]["token_ids"] == [1, 2, 3]
    assert (body["prompt_token_ids"], body["prompt_text"]) == ([7, 8], "<s>hi")
    plain = answer(payloads)
    assert (plain["choices"][0]["token_ids"], plain["prompt_token_ids"]) == (None, None)
    assert "prompt_text" not in plain


def test_scores_of_the_prompt_are_by_id_with_null_first():
    scored = PromptScored(((), (RankedLogprob(5, -0.5, 3, "a"), RankedLogprob(9, float("-inf"), 1, "b"))))
    assert answer([scored, Delta(0, (1,)), finished()])["prompt_logprobs"] == [
        None,
        {
            "5": {"logprob": -0.5, "rank": 3, "decoded_token": "a"},
            "9": {"logprob": -9999.0, "rank": 1, "decoded_token": "b"},
        },
    ]


def test_tokens_can_be_reported_by_id_everywhere():
    entry = TokenLogprob(5, -0.5, "é", "é".encode(), (TopLogprob(6, -0.1, "x", b"x"),))
    (choice,) = answer([Delta(0, (5,), "é", (entry,)), finished()], has_logprobs=True, names_tokens_by_id=True)[
        "choices"
    ]
    (shown,) = choice["logprobs"]["content"]
    assert (shown["token"], shown["bytes"], shown["top_logprobs"][0]["token"]) == (
        "token_id:5",
        [195, 169],
        "token_id:6",
    )


def test_usage_counts_reasoning_and_prediction_tokens():
    writer = ChatAnswer(head())
    counts = Usage(3, 1, 9, reasoning_tokens=4, accepted_prediction_tokens=2, rejected_prediction_tokens=1)
    for event in events([finished(), Completed(Outcome.FINISHED, counts, Timings(0.0))]):
        writer.feed(event)
    assert json.loads(writer.body())["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 9,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {
            "reasoning_tokens": 4,
            "accepted_prediction_tokens": 2,
            "rejected_prediction_tokens": 1,
        },
    }


def test_an_answer_has_every_key():
    body = answer([Delta(0, (1,), "x"), finished()], service_tier="flex")
    assert set(body) == {
        "id",
        "object",
        "created",
        "model",
        "choices",
        "system_fingerprint",
        "usage",
        "prompt_logprobs",
        "prompt_token_ids",
        "kv_transfer_params",
        "service_tier",
    }
    assert set(body["choices"][0]) == {"index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids"}


def test_a_forced_call_without_output_has_null_content():
    """The token limit cut it before the name of its first call."""
    cut = [finished(reason=FinishReason.LENGTH)]
    choice = answer(cut, is_call_forced=True)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "length")
    assert answer(cut)["choices"][0]["message"]["content"] == ""
