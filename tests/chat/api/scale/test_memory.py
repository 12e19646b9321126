"""`memory_strategy`: its shapes and its effect on a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import field_problems
from chat.api.scale.messages import MemoryStrategy, last_messages

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
RESULTS = ("tool", "function")


def conversation(roles: str | list[str]) -> list[dict[str, Any]]:
    """Return messages with these roles; a string has one letter each."""
    names = (
        [next(role for role in ROLES if role.startswith(letter)) for letter in roles]
        if isinstance(roles, str)
        else roles
    )
    return [{"role": role, "content": str(place)} for place, role in enumerate(names)]


CONVERSATION = st.lists(st.sampled_from(ROLES), max_size=14).map(conversation)
KEEP = st.integers(1, 16)


def num_leading(messages: list[dict[str, Any]]) -> int:
    return next(
        (place for place, message in enumerate(messages) if message["role"] not in ("system", "developer")),
        len(messages),
    )


@pytest.mark.parametrize(
    "strategy",
    [
        {"k": 3},
        {"name": "last_k", "k": 3},
        {"name": None, "k": 3, "params": None},
        {"name": "last_k", "params": {"k": 3}},
        {"type": "last_k", "params": {"k": 3}},
        {"type": "last_k", "name": "last_k", "k": 3, "params": {"k": 3, "other": 1}, "more": []},
    ],
    ids=str,
)
def test_every_shape_reads_to_k(strategy):
    assert MemoryStrategy().run_validation(strategy) == 3


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        ("last_k", "m"),
        ([], "m"),
        ({"name": "first_k", "k": 1}, "m"),
        ({"type": 5, "k": 1}, "m"),
        ({"name": "last_k", "type": "window", "k": 1}, "m"),
        ({"name": "LAST_K", "k": 1}, "m"),
        ({"k": 1, "params": {"k": 2}}, "m"),
        ({"k": 1, "params": 5}, "m.params"),
        ({}, "m.k"),
        ({"name": "last_k"}, "m.k"),
        ({"k": None}, "m.k"),
        ({"k": 0}, "m.k"),
        ({"k": -1}, "m.k"),
        ({"k": True}, "m.k"),
        ({"k": 3.0}, "m.k"),
        ({"k": "3"}, "m.k"),
        ({"k": 1, "params": {"k": True}}, "m.k"),
    ],
    ids=str,
)
def test_a_bad_strategy_is_refused_by_name(strategy, path):
    with pytest.raises(ValidationError) as caught:
        MemoryStrategy().run_validation(strategy)
    assert field_problems(caught.value.detail, "m")[0].param == path


@pytest.mark.parametrize(
    ("roles", "k", "kept"),
    [
        ("uau", 1, [2]),
        ("suau", 1, [0, 3]),
        ("sduau", 2, [0, 1, 3, 4]),
        ("usu", 1, [2]),
        ("suau", 3, [0, 1, 2, 3]),
        ("suau", 100, [0, 1, 2, 3]),
        ("uatau", 3, [3, 4]),
        ("uatau", 4, [1, 2, 3, 4]),
        ("suattau", 3, [0, 5, 6]),
        ("uatt", 2, [1, 2, 3]),
        ("uatt", 1, [1, 2, 3]),
        ("uaf", 1, [1, 2]),
        ("ss", 1, [0, 1]),
        ("tt", 1, [1]),
        ("t", 1, [0]),
        ("utt", 1, [2]),
    ],
)
def test_last_messages_keeps_the_expected_messages(roles, k, kept):
    assert last_messages(conversation(roles), k) == kept


def test_results_go_back_to_the_assistant_that_made_their_call():
    calls = [{"role": "assistant", "tool_calls": [{"id": name}]} for name in ("one", "two")]
    messages = [{"role": "user"}, *calls, {"role": "tool", "tool_call_id": "one"}]
    assert last_messages(messages, 1) == [1, 2, 3]
    assert last_messages([*messages[:3], {"role": "tool", "tool_call_id": "two"}], 1) == [2, 3]


def test_messages_of_harmony_have_roles_too():
    authors = [{"role": "developer"}, {"role": "user"}, {"role": "assistant"}, {"role": "tool", "name": "functions.f"}]
    messages = [{"author": author, "content": []} for author in authors]
    assert last_messages(messages, 1) == [0, 2, 3]
    assert last_messages([*messages, {"role": "user"}], 2) == [0, 4]
    assert last_messages([*messages, {"author": 5}, {"author": {"role": []}}], 1) == [0, 5]


def test_invalid_messages_are_kept_or_cut_like_messages():
    assert last_messages([5, None, {"role": []}, "x"], 2) == [2, 3]


@given(CONVERSATION, KEEP)
def test_system_messages_lead_and_the_rest_is_the_end_of_the_conversation(messages, k):
    kept = last_messages(messages, k)
    leading = num_leading(messages)
    assert kept[:leading] == list(range(leading))
    assert kept[leading:] == list(range(len(messages) - (len(kept) - leading), len(messages)))
    if len(messages) > leading:
        assert len(kept) > leading, "never everything but the system is cut"


@given(CONVERSATION, KEEP)
def test_at_most_k_messages_are_kept_unless_only_results_would_remain(messages, k):
    rest = last_messages(messages, k)[num_leading(messages) :]
    if len(rest) > k:
        assert all(messages[place]["role"] in RESULTS for place in rest[-k:])
        assert messages[rest[0]]["role"] == "assistant"


@given(CONVERSATION, KEEP)
def test_results_are_not_kept_without_their_call(messages, k):
    kept = last_messages(messages, k)
    leading = num_leading(messages)
    if len(kept) == len(messages) or not any(message["role"] == "assistant" for message in messages):
        return
    first = messages[kept[leading]]["role"]
    assert first not in RESULTS or all(message["role"] != "assistant" for message in messages[: kept[leading]])


@given(CONVERSATION, KEEP)
def test_cutting_twice_equals_cutting_once(messages, k):
    once = [messages[place] for place in last_messages(messages, k)]
    assert [once[place] for place in last_messages(once, k)] == once


@given(CONVERSATION)
def test_a_k_of_all_messages_keeps_everything(messages):
    assert last_messages(messages, max(1, len(messages))) == list(range(len(messages)))
