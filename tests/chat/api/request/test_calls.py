"""Results find their calls at linear cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.request.message_parts import CallReader, UnansweredCalls
from chat.api.request.messages import messages_walk
from chat.errors import ApiError, Problems

NAMES, IDS = st.sampled_from("fg"), st.sampled_from("123")
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES, IDS), st.tuples(st.just("remove"), IDS), st.tuples(st.just("take"), NAMES)
)


@given(st.lists(STEPS, max_size=30))
def test_unanswered_calls_equal_those_of_a_plain_list(steps):
    calls, plain = UnansweredCalls(), []
    for word, *values in steps:
        if word == "add":
            calls.add(*values)
            plain.append(tuple(values))
        elif word == "remove":
            calls.remove(*values)
            plain = [call for call in plain if call[1] != values[0]]
        else:
            places = [index for index, call in enumerate(plain) if call[0] == values[0]]
            assert calls.take_latest(values[0]) == (plain.pop(places[-1])[1] if places else None)


def test_ten_thousand_results_to_as_many_calls_are_read_once_each():
    """A scan of all calls per result took a second for half a megabyte, minutes for a whole body."""
    calls = [{"id": str(number), "function": {"name": "f"}} for number in range(20_000)]
    results = [{"role": "tool", "tool_call_id": str(number), "content": ""} for number in range(5_000)]
    old = [{"author": {"role": "tool", "name": f"functions.{name}"}, "content": []} for name in "fg" * 2_000]
    walked = messages_walk([{"role": "assistant", "tool_calls": calls}, *results, *old], model="m", max_parts=1)
    assert [message.get("tool_call_id") for message in walked[5_001:5_005]] == ["19999", None, "19998", None]


def test_arguments_of_all_calls_have_no_more_values_than_a_body_may():
    """Arguments are JSON in strings, which the value count of the body does not see."""
    reader = CallReader(Problems())
    reader.arguments("[" + "[]," * 60_000 + "1]")
    with pytest.raises(ApiError, match="JSON values"):
        reader.arguments("[" + "[]," * 60_000 + "1]")
