"""The end of an answer, and which part of it is in the text."""

from __future__ import annotations

import pytest

from tests.contract.parameters.conftest import COUNTING, joined


@pytest.fixture(scope="module")
def text(ask) -> str:
    return ask.text(max_tokens=24)


@pytest.mark.parameter("stop")
def test_a_stop_string_cuts_the_text_before_it_also_across_tokens(ask, text):
    stop = text[9:17]
    choice = ask.choice(max_tokens=24, stop=["never seen", stop])
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert joined(ask.chunks(max_tokens=24, stop=stop)) == text[: text.index(stop)]
    for bad in ("", [""], [5], ["x"] * 33):
        assert ask.refusal(stop=bad)[0].startswith("stop")


@pytest.mark.parameter("include_stop_str_in_output")
def test_the_stop_string_or_token_may_stay_in_the_text(ask, text):
    stop = text[9:17]
    kept = ask.text(max_tokens=24, stop=stop, include_stop_str_in_output=True)
    assert kept == text[: text.index(stop) + len(stop)]
    ids = ask.token_ids()
    kept = ask.text(stop_token_ids=[ids[3]], include_stop_str_in_output=True)
    assert kept.startswith(ask.text(stop_token_ids=[ids[3]]))
    assert kept != ask.text(stop_token_ids=[ids[3]])


@pytest.mark.parameter("stop_token_ids")
def test_a_stop_token_ends_the_answer_and_its_text_is_dropped(ask):
    ids = ask.token_ids()
    choice = ask.choice(stop_token_ids=[ids[3]], return_token_ids=True)
    end = ids.index(ids[3])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ids[3])
    assert choice["token_ids"] == ids[: end + 1]
    assert choice["message"]["content"] == ask.text(max_tokens=end)
    assert ask.refusal(stop_token_ids=[1_000_000_000_000])[0].startswith("stop_token_ids")


@pytest.mark.parameter("ignore_eos")
def test_the_end_token_may_be_ignored(ask):
    ended = ask.choice(messages=COUNTING)
    assert (ended["finish_reason"], ended["stop_reason"]) == ("stop", None)
    ignored = ask.answer(messages=COUNTING, ignore_eos=True)
    assert (ignored["choices"][0]["finish_reason"], ignored["usage"]["completion_tokens"]) == ("length", 8)


@pytest.mark.parameter("min_tokens")
def test_min_tokens_delays_every_end_of_an_answer(ask, text):
    assert ask.answer(messages=COUNTING)["usage"]["completion_tokens"] < 6
    assert ask.answer(messages=COUNTING, min_tokens=6)["usage"]["completion_tokens"] >= 6
    assert ask.text(max_tokens=24, stop=text[4], min_tokens=24) == text
    assert ask.refusal(min_tokens=9)[0] == "min_tokens"


@pytest.fixture(scope="module")
def end_id(ask) -> int:
    """Return the id of the end token, which is special."""
    return ask.token_ids(messages=COUNTING)[-1]


@pytest.mark.parameter("skip_special_tokens")
def test_special_tokens_are_left_out_of_the_text_or_not(ask, end_id):
    ends = {"allowed_token_ids": [end_id], "ignore_eos": True, "max_tokens": 1}
    assert ask.text(**ends) == ""
    assert ask.text(**ends, skip_special_tokens=False) == "<|im_end|>"


@pytest.mark.parameter("spaces_between_special_tokens")
def test_special_tokens_are_joined_with_or_without_a_space(ask, end_id):
    ends = {"allowed_token_ids": [end_id], "ignore_eos": True, "max_tokens": 2, "skip_special_tokens": False}
    assert ask.text(**ends) == "<|im_end|> <|im_end|>"
    assert ask.text(**ends, spaces_between_special_tokens=False) == "<|im_end|><|im_end|>"


@pytest.mark.parameter("repetition_detection")
def test_a_pattern_that_repeats_ends_the_answer(ask):
    token_id = ask.token_ids()[0]
    looping = {"allowed_token_ids": [token_id], "max_tokens": 30}
    choice = ask.choice(**looping, repetition_detection={"max_pattern_size": 2, "min_count": 5}, return_token_ids=True)
    assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert choice["token_ids"] == [token_id] * 5
    pairs_only = {"max_pattern_size": 2, "min_pattern_size": 2, "min_count": 5}
    assert len(ask.token_ids(**looping, repetition_detection=pairs_only)) == 10
    assert len(ask.token_ids(**looping, repetition_detection={"max_pattern_size": 0})) == 30
    upside_down = {"max_pattern_size": 1, "min_pattern_size": 2, "min_count": 2}
    for bad in ({"max_pattern_size": -1}, {"max_pattern_size": 2, "min_count": 1}, upside_down):
        assert ask.refusal(repetition_detection=bad)[0].startswith("repetition_detection")
