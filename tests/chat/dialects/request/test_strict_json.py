"""Bodies that are strict JSON objects are read; anything else is 400 `invalid_json`, however it is malformed."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.dialects.request.strict_json import PIECE_BYTES, JsonBounds, json_object_read, json_read
from chat.errors import ApiError


def read(body: bytes, *, values: int = 500_000) -> dict:
    return json_object_read(body, JsonBounds(depth=256, digits=64, values=values))


BAD = {
    "empty": b"",
    "blank": b"  \n",
    "cut": b"{",
    "list": b"[]",
    "string": b'"x"',
    "number": b"5",
    "null": b"null",
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "overflow": b'{"a": 1e999}',
    "trailing comma": b'{"a": 1,}',
    "two values": b"{} {}",
    "latin-1": b'{"a": "\xe9"}',
    "lone surrogate": rb'{"a": "\ud800"}',
    "raw surrogate bytes": b'{"a": "\xed\xa0\x80"}',
    "raw newline in a string": b'{"a": "\n"}',
    "deep arrays": b'{"a":' + b"[" * 100_000,
    "deep objects": b'{"a":' * 300 + b"1" + b"}" * 300,
    "5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "long exponent": b'{"a": 1e' + b"0" * 80 + b"1}",
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_a_malformed_body_is_refused_with_a_short_message(body):
    with pytest.raises(ApiError) as caught:
        read(body)
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 400


def test_a_byte_order_mark_is_skipped():
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def test_of_duplicate_keys_the_last_wins():
    assert read(b'{"n": 1, "n": 2}') == {"n": 2}


def test_brackets_and_digits_inside_strings_count_for_nothing():
    text = "[{" * 1000 + "9" * 500 + '\\"' + "[" * 300
    assert read(json.dumps({"a": text, "b": ["[" * 400]}).encode())["a"] == text


def test_the_deepest_allowed_nesting_is_read():
    depth = 255
    assert read(b'{"a":' + b"[" * depth + b"]" * depth + b"}")


def test_many_shallow_objects_are_read():
    assert len(read(json.dumps({"messages": [{"role": "user"}] * 5000}).encode())["messages"]) == 5000


def test_the_scan_of_an_unterminated_string_full_of_escapes_is_linear():
    started = time.process_time()
    with pytest.raises(ApiError):
        read(b"[" * 300 + b'"' + b'\\"' * 500_000)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    ("body", "num_values"),
    [
        (b'{"a": [1, 2, 3]}', 12),
        (b'{"a": {}, "b": []}', 17),
        (rb'{"a[,": "{:[\",}", "b": "\\"}', 9),
        (b'{"prompt": [' + b",".join([b"31999"] * 20_000) + b"]}", 20_009),
    ],
    ids=["list", "empty ones", "in strings", "token ids"],
)
def test_values_are_counted_before_any_is_built(body, num_values):
    read(body, values=num_values)
    with pytest.raises(ApiError, match="JSON values") as caught:
        read(body, values=num_values - 1)
    assert caught.value.status == 413


@pytest.mark.parametrize("shift", range(8))
def test_a_string_that_is_cut_between_two_pieces_of_the_scan_stays_a_string(shift):
    """The scan goes through a body piece by piece; brackets of a string counted where a piece began within it."""
    text = '\\"[{' * 40_000
    body = json.dumps({"a" * shift: text, "b": [1]}).encode()
    assert read(body, values=13)["a" * shift] == text


def test_a_number_that_is_cut_between_two_pieces_of_the_scan_is_one_number():
    body = b'{"a": [' + b" " * (PIECE_BYTES - 40) + b"9" * 65 + b"]}"
    with pytest.raises(ApiError, match="digits"):
        read(body)


def test_several_texts_use_up_the_values_of_one_request_together():
    """Arguments of calls are JSON in strings, and a conversation has thousands of them."""
    bounds = JsonBounds(depth=256, digits=64, values=10)
    json_read(b"[1, 2, 3]", bounds)
    with pytest.raises(ApiError, match="JSON values"):
        json_read(b'{"a": [1, 2], "b": 3}', bounds)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_what_json_writes_is_read_back(value):
    assert read(json.dumps(value).encode()) == value
