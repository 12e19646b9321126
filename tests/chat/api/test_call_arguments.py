"""Arguments of calls as objects, complete or truncated."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chat.api.chat_format.arguments import complete_part, input_read

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=4)


@given(OBJECTS, st.booleans())
def test_complete_arguments_are_read_unchanged(value, is_ascii):
    assert input_read(json.dumps(value, ensure_ascii=is_ascii)) == value


def is_beginning(part, whole) -> bool:
    """Return whether `part` is `whole` with later members and items left out, at every level."""
    if isinstance(part, dict) and isinstance(whole, dict):
        names = list(part)
        return names == list(whole)[: len(names)] and all(is_beginning(part[name], whole[name]) for name in names)
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_beginning, part, whole))
    return part == whole


@given(st.data(), OBJECTS, st.sampled_from([None, 1]))
def test_truncated_arguments_keep_complete_values(data, value, indent):
    text = json.dumps(value, indent=indent)
    part = text[: data.draw(st.integers(0, len(text)))]
    assert is_beginning(input_read(part), value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("  ", {}),
        ("[1]", {"input": [1]}),
        ("5", {"input": 5}),
        ("null", {"input": "null"}),
        ("hello", {"input": "hello"}),
        ('{"a": 1, "b": tr', {"a": 1}),
        ('{"a": "x\\', {}),
        ('{"a": "x\\"', {}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1]}}),
        ('{"a" 5}', {}),
        ("{]", {}),
    ],
)
def test_arguments_that_are_no_object_become_one(text, value):
    assert input_read(text) == value


def test_deeply_nested_arguments_raise_no_error():
    assert input_read('{"a":' * 100_000) == {}
    assert complete_part("[" * 5) == "[[[[[]]]]]"
