"""Secrets enter no entry, whatever field they stand in."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.audit.values import MAX_CHARS, differing, masked

SECRET = "0123456789abcdef" * 3
KEY = f"lc_accept0001_{SECRET}"
NESTED = st.recursive(
    st.just(KEY) | st.text() | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.just(KEY), inner, max_size=4),
)


@given(NESTED, st.text() | st.just(KEY))
def test_keys_are_masked_in_names_and_values_at_any_depth(value: Any, name: str) -> None:
    stored = json.dumps(masked({name: value}))
    assert SECRET not in stored
    assert "\\u0000" not in stored, "PostgreSQL stores none"


@pytest.mark.parametrize(
    "name",
    ["password", "password1", "old_password", "client_secret", "digest", "hub_token", "token", "api_key", "key_pepper"],
)
def test_fields_that_hold_secrets_say_only_that_they_are_set(name: str) -> None:
    assert masked({name: "hunter2"}) == {name: "***"}
    assert masked({name: ["hunter2"], "within": {name: "hunter2"}}) == {name: "***", "within": {name: "***"}}
    assert masked({name: ""}) == {name: ""}


@pytest.mark.parametrize("name", ["tokens_per_minute", "max_output_tokens", "name"])
def test_fields_of_limits_are_no_secrets(name: str) -> None:
    assert masked({name: 60}) == {name: 60}


def test_long_texts_are_cut_and_what_models_are_told_is_not_written() -> None:
    stored = masked({"chat_template": "a" * 2000, "system_prompt": "Be brief."})
    assert stored["chat_template"] == "a" * MAX_CHARS + "… (2,000 characters)"
    assert stored["system_prompt"] == "(9 characters)"


def test_values_are_plain() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    assert masked({"at": at, "price": Decimal("0.250000"), "names": {"b"}}) == {
        "at": "2026-01-31T00:00:00+00:00",
        "price": "0.250000",
        "names": ["b"],
    }


def test_only_fields_that_differ_are_kept() -> None:
    assert differing({"a": 1, "b": 2, "gone": 3}, {"a": 1, "b": 4, "new": 5}) == (
        {"b": 2, "gone": 3},
        {"b": 4, "new": 5},
    )
