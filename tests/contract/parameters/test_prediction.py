"""Predicted outputs."""

from __future__ import annotations

import pytest


def counts(answer) -> tuple[int, int]:
    details = answer["usage"]["completion_tokens_details"]
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


@pytest.mark.parameter("prediction")
def test_a_good_prediction_is_accepted_and_a_bad_one_changes_nothing(ask):
    plain = ask.answer(max_tokens=24)
    text = plain["choices"][0]["message"]["content"]
    assert counts(plain) == (0, 0)
    good = ask.answer(max_tokens=24, prediction={"type": "content", "content": text})
    bad = ask.answer(
        max_tokens=24, prediction={"type": "content", "content": [{"type": "text", "text": "12 34 56 78 90"}]}
    )
    for answer in (good, bad):
        assert answer["choices"][0]["message"]["content"] == text
        assert answer["usage"]["completion_tokens"] == 24
    assert counts(good)[0] > 0
    assert counts(bad)[0] == 0
    assert counts(bad)[1] > 0


@pytest.mark.parameter("prediction")
def test_a_prediction_does_not_change_a_draw(ask):
    drawn = {"temperature": 1, "seed": 7, "max_tokens": 16}
    text = ask.text(**drawn)
    assert ask.text(prediction={"type": "content", "content": text}, **drawn) == text


@pytest.mark.parametrize(
    "bad", ["x", {"type": "content"}, {"type": "image", "content": "x"}, {"type": "content", "content": 5}], ids=str
)
@pytest.mark.parameter("prediction")
def test_a_malformed_prediction_is_refused(ask, bad):
    assert ask.refusal(prediction=bad)[0].startswith("prediction")
