"""Strict JSON objects are read; any other body is 400 `invalid_json`."""

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chat.api.request import strict_json
from chat.api.request.strict_json import PIECE_BYTES, JsonBounds, json_object_read, json_read
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


def test_brackets_and_digits_inside_strings_are_not_counted():
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
def test_a_string_across_two_scan_chunks_stays_one_string(shift):
    """Brackets in a string were counted if a scan chunk began within it."""
    text = '\\"[{' * 40_000
    body = json.dumps({"a" * shift: text, "b": [1]}).encode()
    assert read(body, values=13)["a" * shift] == text


def test_a_number_across_two_scan_chunks_stays_one_number():
    body = b'{"a": [' + b" " * (PIECE_BYTES - 40) + b"9" * 65 + b"]}"
    with pytest.raises(ApiError, match="digits"):
        read(body)


def test_several_texts_share_the_value_limit_of_one_request():
    """Call arguments are JSON in strings, and a conversation may have thousands of them."""
    bounds = JsonBounds(depth=256, digits=64, values=10)
    json_read(b"[1, 2, 3]", bounds)
    with pytest.raises(ApiError, match="JSON values"):
        json_read(b'{"a": [1, 2], "b": 3}', bounds)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_valid_json_is_read_unchanged(value):
    assert read(json.dumps(value).encode()) == value


def scanned(text: bytes) -> JsonBounds:
    """Count what a valid text uses of the limits, byte by byte."""
    depth = deepest = digits = most_digits = taken = 0
    is_inside = is_escaped = False
    for byte in text:
        mark = chr(byte)
        if is_inside:
            is_escaped, is_inside = mark == "\\" and not is_escaped, is_escaped or mark != '"'
            continue
        is_inside = mark == '"'
        digits = digits + mark.isdigit() if mark.isdigit() or mark in "-+.eE" else 0
        most_digits = max(most_digits, digits)
        depth += (mark in "[{") - (mark in "]}")
        deepest = max(deepest, depth)
        taken += 1 if mark == "," else 2 * (mark in ":[]{}")
    return JsonBounds(depth=deepest, digits=most_digits, values=taken)


hard_text = st.text(st.sampled_from('"\\[{:,}]1é\n'), max_size=12)
hard_values = st.recursive(
    values | hard_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hard_text, inner, max_size=3),
    max_leaves=20,
)


@given(value=hard_values, piece_bytes=st.integers(1, 40), indent=st.sampled_from([None, 1]))
@example(value=0.007215400323407826, piece_bytes=5, indent=None)
def test_the_chunked_scan_counts_like_a_bytewise_scan(value, piece_bytes, indent):
    text = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    exact = scanned(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "PIECE_BYTES", piece_bytes)
        strict_json._check_bounds(text, JsonBounds(exact.depth, exact.digits, exact.values))
        for name in ("depth", "digits", "values"):
            less = JsonBounds(exact.depth, exact.digits, exact.values)
            setattr(less, name, getattr(exact, name) - 1)
            if getattr(less, name) >= 0:
                with pytest.raises(ApiError):
                    strict_json._check_bounds(text, less)


def test_the_longest_allowed_numbers_are_scanned_once():
    """Each digit was tried as the start of a longer number: 3 MB with 1,000 digits each took 41 s."""
    text = b"[" + b",".join([b"1" * 1_000] * 3_000) + b"]"
    started = time.process_time()
    strict_json._check_bounds(text, JsonBounds(depth=1, digits=1_000, values=10_000))
    assert time.process_time() - started < 4.0
