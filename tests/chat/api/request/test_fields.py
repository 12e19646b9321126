"""Coercions are exactly those of the request schema: wider than JSON's, narrower than Python's."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import boolean_read, echo, integer_read, number_read


@pytest.mark.parametrize(
    ("given_value", "read"),
    [("5", 5), (2.0, 2), (1e9, 10**9), (True, 1), ("-7", -7), ("+3", 3), (-0.0, 0), (2**63 - 1, 2**63 - 1)],
)
def test_integers_are_read_from_whole_numbers_and_their_strings(given_value, read):
    assert integer_read(given_value) == read


@pytest.mark.parametrize(
    "value",
    [
        2.5,
        "2.5",
        "1e3",
        "",
        " 5",
        "5 ",
        "٥",
        "0x10",
        "1_000",
        None,
        [],
        {},
        2**63,
        -(2**63) - 1,
        -(2.0**63),
        1e30,
        "9" * 64,
    ],
)
def test_other_values_are_no_integers(value):
    with pytest.raises(ValidationError):
        integer_read(value)


def test_integer_fields_may_refuse_strings():
    with pytest.raises(ValidationError):
        integer_read("5", accepts_strings=False)


@pytest.mark.parametrize(
    ("given_value", "read"), [("0.5", 0.5), (".5", 0.5), ("-1.", -1.0), (True, 1.0), (3, 3.0), (-0.0, 0.0)]
)
def test_numbers_are_read_from_numbers_booleans_and_plain_decimals(given_value, read):
    assert number_read(given_value) == read


@pytest.mark.parametrize("value", ["1e3", "nan", "inf", "٠.٥", "", ".", "1,5", None, [], math.inf, math.nan, "0x1p3"])
def test_other_values_are_no_numbers(value):
    with pytest.raises(ValidationError):
        number_read(value)


@pytest.mark.parametrize("word", ["true", "1", "yes", "on", "t", "y", "True", 1, 1.0, True])
def test_words_for_true_are_read(word):
    assert boolean_read(word) is True


@pytest.mark.parametrize("word", ["false", "0", "no", "off", "f", "n", 0, False])
def test_words_for_false_are_read(word):
    assert boolean_read(word) is False


@pytest.mark.parametrize("word", ["", "ja", 5, -1, None, [], "true " * 1000, 0.5])
def test_other_values_are_no_booleans(word):
    with pytest.raises(ValidationError):
        boolean_read(word)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.lists(st.integers()), st.none()))
def test_readers_answer_or_raise_validation_error_and_echo_is_short(value):
    for read in (integer_read, number_read, boolean_read):
        with contextlib.suppress(ValidationError):
            read(value)
    assert len(echo(value)) <= 200


def test_values_are_echoed_in_json_terms():
    assert [echo(value) for value in (None, True, 1.5, "a", {}, [])] == [
        "null",
        "true",
        "1.5",
        "'a'",
        "an object",
        "an array",
    ]
