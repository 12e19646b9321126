"""Requests refused for their key are counted, and logged at intervals."""

from __future__ import annotations

import logging

import pytest

from chat.relay.web.chores import LOG_EVERY_S, Refusals


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_refusals_are_logged_once_a_minute_and_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3000):
            refusals.note(401)
        clock.now += LOG_EVERY_S
        refusals.note(429)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "1 with 401",
        "2999 with 401, 1 with 429",
    ]
    assert refusals.take() == {401: 3000, 429: 1}


def test_unreported_counts_are_reported_later() -> None:
    refusals = Refusals()
    refusals.note(401)
    refusals.add(refusals.take())
    refusals.note(401)
    assert refusals.take() == {401: 2}
    assert refusals.take() == {}
