"""Messages in the forms of Scale's clients."""

from __future__ import annotations

import copy

import pytest

from chat.api.request.messages import messages_walk
from chat.api.scale.messages import has_single_part, messages_formed

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PART = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("message", "role"),
    [
        ({"content": "hi"}, "user"),
        ({"content": "hi", "role": None}, "user"),
        ({"content": "sunny", "tool_call_id": "c"}, "tool"),
        ({"tool_calls": [CALL]}, "assistant"),
        ({"function_call": {"name": "f", "arguments": "{}"}}, "assistant"),
        ({"content": "x", "role": "system"}, "system"),
        ({"content": "x", "role": "narrator", "tool_call_id": "c"}, "narrator"),
    ],
    ids=str,
)
def test_a_missing_role_is_derived_from_the_message(message, role):
    assert messages_formed([message])[0]["role"] == role


def test_a_message_with_an_author_is_unchanged():
    message = {"author": {"role": "user"}, "content": [PART]}
    assert messages_formed([message]) == [message]


def test_a_single_part_becomes_a_list_in_user_messages_only():
    assert messages_formed([{"content": PART}])[0]["content"] == [PART]
    assert messages_formed([{"role": "user", "content": PART}])[0]["content"] == [PART]
    assert messages_formed([{"role": "assistant", "content": PART}])[0]["content"] == PART
    assert has_single_part({"content": PART})
    assert not has_single_part({"role": "system", "content": PART})
    assert not has_single_part({"content": [PART]})
    assert not has_single_part("x")


def test_only_audio_of_the_assistant_is_removed():
    assert messages_formed([{"role": "assistant", "audio": {"id": "a"}}]) == [{"role": "assistant"}]
    assert messages_formed([{"role": "user", "content": "x", "audio": {"id": "a"}}])[0]["audio"] == {"id": "a"}
    assert messages_formed([{"role": "assistant", "audio": 5}])[0]["audio"] == 5
    assert messages_formed([5, None, "x"]) == [5, None, "x"]


def test_the_sent_messages_are_not_modified():
    sent = [{"content": PART}, {"tool_calls": [CALL], "audio": {"id": "a"}}]
    before = copy.deepcopy(sent)
    messages_formed(sent)
    assert sent == before


def test_formed_messages_pass_the_message_check():
    sent = [
        {"content": PART},
        {"tool_calls": [CALL]},
        {"tool_call_id": "c", "content": "1"},
        {"function_call": {"name": "f"}, "content": None},
    ]
    walked = messages_walk(messages_formed(sent), model="m", max_parts=10)
    assert [message["role"] for message in walked] == ["user", "assistant", "tool", "assistant"]
    assert walked[3]["tool_calls"][0]["function"]["name"] == "f"
