"""Sharing of cached prefixes; transfer of caches."""

from __future__ import annotations

import pytest

STORY = [{"role": "user", "content": "Once upon a time there was a lighthouse by the sea. " * 8}]


def cached(asker, **fields) -> int:
    return int(asker.answer(messages=STORY, **fields)["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parameter("cache_salt")
def test_requests_of_different_salts_share_nothing(ask):
    cached(ask)
    assert cached(ask) >= 64
    assert cached(ask, cache_salt="first") == 0
    assert cached(ask, cache_salt="first") >= 64
    assert cached(ask, cache_salt="@/\\") == 0
    assert ask.text(messages=STORY, cache_salt="first") == ask.text(messages=STORY)
    for bad in ("", "x" * 129, "a\n", 5):
        assert ask.refusal(cache_salt=bad)[0] == "cache_salt"


@pytest.mark.parameter("kv_transfer_params")
def test_only_cache_transfers_without_effect_are_accepted(ask):
    for nothing in ({}, {"do_remote_decode": False, "remote_host": None}):
        assert ask.answer(kv_transfer_params=nothing)["kv_transfer_params"] is None
    assert ask.refusal(kv_transfer_params={"remote_host": "10.0.0.1", "remote_port": 1})[0] == "kv_transfer_params"


@pytest.mark.parameter("prompt_cache_retention")
def test_the_retention_is_read_and_changes_nothing(ask):
    assert ask.text(prompt_cache_retention="24h") == ask.text()
    assert ask.refusal(prompt_cache_retention=5)[0] == "prompt_cache_retention"
