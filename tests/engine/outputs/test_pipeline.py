"""The pipeline from ids to events: one Delta per step, text cut at stop strings, log-probabilities aligned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ChoiceFinished, Delta, FinishReason, LogprobOptions, StopRules, TokenLogprob, TopLogprob
from engine.messages import SampledLogprobs
from engine.outputs.pipeline import LEAST_LOGPROB, ChoicePipeline
from tests.engine.tiny_tokenizer import IM_END, VOCAB_SIZE, tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def pipeline(logprobs=None, **rules):
    return ChoicePipeline(0, TOKENIZER, StopRules(**rules), logprobs or LogprobOptions())


def text_of(events):
    return "".join(event.text for event in events)


def feed_split(ids, sizes, finish, **rules):
    """Feed ids in groups of these sizes (the rest in one), with the core's finish at the last."""
    stage, events, rest = pipeline(**rules), [], list(ids)
    for size in sizes:
        if len(rest) > size and not stage.finished:
            events += stage.feed(rest[:size])
            rest = rest[size:]
    if not stage.finished:
        events += stage.feed(rest, finish=finish)
    return stage, events


@given(
    st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=20),
    st.lists(st.integers(1, 5), max_size=6),
    st.sampled_from([None, "stop", "length"]),
    st.lists(st.sampled_from(["a", "he", "ello", "\u00e9", "\ufffd"]), max_size=2).map(tuple),
    st.integers(0, 4),
)
def test_any_split_of_the_ids_gives_the_same_answer(ids, sizes, finish, stop, min_tokens):
    one_by_one, expected = feed_split(ids, [1] * len(ids), finish, stop=stop, min_tokens=min_tokens)
    split, events = feed_split(ids, sizes, finish, stop=stop, min_tokens=min_tokens)
    assert text_of(events) == text_of(expected)
    assert split.num_tokens == one_by_one.num_tokens
    assert split.finished == one_by_one.finished
    if split.finished:
        assert (events[-1].reason, events[-1].stop_reason) == (expected[-1].reason, expected[-1].stop_reason)


def test_tokens_after_a_stop_string_are_dropped_and_do_not_count():
    stage = pipeline(stop=("ello",))
    assert stage.feed(TOKENIZER.encode("say hello") + TOKENIZER.encode("more"), finish="length") == [
        Delta(0, tuple(TOKENIZER.encode("say hello")), "say h"),
        ChoiceFinished(0, FinishReason.STOP, "ello"),
    ]
    assert stage.num_tokens == len(TOKENIZER.encode("say hello"))


def test_the_primary_end_token_has_no_stop_reason_and_no_text():
    assert pipeline().feed([*b"hi", IM_END], finish="stop") == [
        Delta(0, (*b"hi", IM_END), "hi"),
        ChoiceFinished(0, FinishReason.STOP, None),
    ]


def test_the_primary_end_token_is_a_stop_reason_only_if_eos_is_ignored():
    """A request with the end token as a stop id got that id as its reason, although the answer ended normally."""
    for ignore_eos, named in ((False, None), (True, IM_END)):
        events = pipeline(stop_token_ids=(IM_END,), ignore_eos=ignore_eos).feed([*b"hi", IM_END], finish="stop")
        assert events[-1] == ChoiceFinished(0, FinishReason.STOP, named)


def test_a_requested_stop_token_is_the_stop_reason_and_its_text_is_dropped():
    (a,) = b"a"
    delta, finished = pipeline(stop_token_ids=(a,)).feed([*b"xa"], finish="stop")
    assert (delta.text, finished.stop_reason) == ("x", a)
    delta, _ = pipeline(stop_token_ids=(a,), include_stop_str_in_output=True).feed([*b"xa"], finish="stop")
    assert delta.text == "xa"


def test_text_held_back_for_a_stop_string_is_sent_with_the_end():
    stage = pipeline(stop=("abc",))
    assert stage.feed([*b"xab"]) == [Delta(0, tuple(b"xab"), "x")]
    assert stage.feed([*b"a"], finish="length") == [
        Delta(0, tuple(b"a"), "ab"),
        ChoiceFinished(0, FinishReason.LENGTH, None, "a"),
    ]


def test_a_character_cut_off_by_the_limit_becomes_a_replacement_character():
    events = pipeline().feed(list("\u00e9".encode())[:1], finish="length")
    assert text_of(events) == "\ufffd"


def test_stop_strings_are_not_searched_before_min_tokens():
    events = pipeline(stop=("a",), min_tokens=2).feed([*b"aaba"])
    assert text_of(events) == "aab"
    assert events[-1].stop_reason == "a"


def test_logprobs_carry_the_tokens_bytes_and_the_text_they_complete():
    stage = pipeline(LogprobOptions(enabled=True, top=1))
    first, second = "\u00e9".encode()
    sampled = [SampledLogprobs(-0.5, [second], [-0.1]), SampledLogprobs(float("-inf"), [second], [-0.2])]
    (delta,) = stage.feed([first, second], sampled)
    assert delta.logprobs == (
        TokenLogprob(first, -0.5, "", bytes([first]), (TopLogprob(second, -0.1, "\ufffd", bytes([second])),)),
        TokenLogprob(
            second, LEAST_LOGPROB, "\u00e9", bytes([second]), (TopLogprob(second, -0.2, "\u00e9", bytes([second])),)
        ),
    )


def test_logprobs_continue_within_a_character_after_a_replay():
    """The bytes before the replay's end were missing, so that the character became U+FFFD."""
    stage = pipeline(LogprobOptions(enabled=True))
    first, second = "\u00e9".encode()
    (replayed,) = stage.feed([first])
    (delta,) = stage.feed([second], [SampledLogprobs(-0.5)])
    assert replayed.logprobs is None
    assert delta.logprobs == (TokenLogprob(second, -0.5, "\u00e9", bytes([second])),)


def test_logprobs_show_the_control_token_that_ended_the_answer():
    (delta, _) = pipeline(LogprobOptions(enabled=True)).feed([IM_END], [SampledLogprobs(-1.0)], "stop")
    assert delta.logprobs == (TokenLogprob(IM_END, -1.0, "<|im_end|>", b"<|im_end|>"),)
    assert delta.text == ""


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_no_event_follows_the_end_of_a_choice(finish):
    stage = pipeline()
    assert isinstance(stage.feed([*b"a"], finish=finish)[-1], ChoiceFinished)
    assert stage.finished
