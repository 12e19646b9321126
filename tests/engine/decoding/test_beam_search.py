"""Beam search against all possible answers, where these can be counted, and its rules one by one."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.beam_search import BeamSearch, EndRules
from engine.messages import SampledLogprobs
from tests.examples import examples

EOS = 3


def make_ends(max_tokens, stop_ids=(EOS,), stops=(), min_tokens=0):
    return EndRules(frozenset(stop_ids), tuple(stops), min_tokens, max_tokens, lambda token_id: bytes([97 + token_id]))


def search(width, length_penalty, ends, logprobs_after):
    """Run a search over a model `logprobs_after(token_ids) -> {token_id: logprob}`."""
    beams = BeamSearch(width, length_penalty, ends)
    while not beams.is_over:
        alternatives = []
        for beam in beams.live:
            ranked = sorted(logprobs_after(tuple(beam.token_ids)).items(), key=lambda pair: (-pair[1], pair[0]))[
                : beams.num_alternatives
            ]
            alternatives.append(SampledLogprobs(0.0, [pair[0] for pair in ranked], [pair[1] for pair in ranked]))
        beams.advance(alternatives)
    return [(ended.beam.token_ids, pytest.approx(ended.score), ended.reason) for ended in beams.best()]


def all_answers(length_penalty, max_tokens, logprobs_after):
    """Return every answer with its score, best first."""
    answers = []
    for length in range(1, max_tokens + 1):
        for token_ids in itertools.product(range(4), repeat=length):
            if EOS in token_ids[:-1] or (length < max_tokens and token_ids[-1] != EOS):
                continue
            total = sum(logprobs_after(token_ids[:place])[token_id] for place, token_id in enumerate(token_ids))
            answers.append(
                (list(token_ids), total / length**length_penalty, "stop" if token_ids[-1] == EOS else "length")
            )
    return sorted(answers, key=lambda answer: -answer[1])


def table(weights):
    """A model whose next token depends on the last token and the position."""

    def logprobs_after(token_ids):
        row = weights[((token_ids[-1] + 1) if token_ids else 0) + 5 * (len(token_ids) % 2)]
        total = math.log(sum(math.exp(weight) for weight in row))
        return {token_id: weight - total for token_id, weight in enumerate(row)}

    return logprobs_after


weights = st.lists(st.lists(st.floats(-4, 4), min_size=4, max_size=4), min_size=10, max_size=10)


@examples(60)
@given(weights, st.integers(1, 4))
def test_a_search_as_wide_as_all_answers_finds_the_best_of_them_in_order(rows, max_tokens):
    """Without a length penalty the score only falls, so the early end loses nothing."""
    model = table(rows)
    answers = all_answers(0.0, max_tokens, model)
    found = search(100, 0.0, make_ends(max_tokens), model)
    assert [score for _, score, _ in found] == [score for _, score, _ in answers[: len(found)]]
    assert len(found) == min(100, len(answers))


@examples(60)
@given(weights, st.integers(1, 4), st.integers(1, 6), st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]))
def test_every_answer_has_its_true_score_and_they_come_sorted(rows, max_tokens, width, length_penalty):
    model = table(rows)
    scores = {
        tuple(token_ids): (score, reason) for token_ids, score, reason in all_answers(length_penalty, max_tokens, model)
    }
    found = search(width, length_penalty, make_ends(max_tokens), model)
    assert found
    for token_ids, score, reason in found:
        assert (score, reason) == scores[tuple(token_ids)]
    values = [score.expected for _, score, _ in found]
    assert values == sorted(values, reverse=True)
    assert len({tuple(token_ids) for token_ids, _, _ in found}) == len(found)


def chain(*rounds):
    """A model that depends on the place alone."""
    return lambda token_ids: rounds[len(token_ids)]


def test_the_length_penalty_decides_between_a_short_and_a_long_answer():
    model = chain({EOS: -1.0, 0: -0.6}, {EOS: -0.9}, {EOS: -9.0})
    assert [found[0] for found in search(2, 1.0, make_ends(3), model)] == [[0, EOS], [EOS]]
    assert [found[0] for found in search(2, 0.0, make_ends(3), model)] == [[EOS], [0, EOS]]


def test_an_ended_beam_ranked_beyond_the_width_is_dropped():
    model = chain({0: -0.1, EOS: -3.0}, {0: -0.1, EOS: -0.2})
    assert search(1, 0.0, make_ends(2), model) == [([0, 0], pytest.approx(-0.2), "length")]


def test_ties_go_to_the_earlier_beam_and_the_lower_id():
    model = chain({0: -1.0, 1: -1.0, 2: -1.0}, {2: -1.0, 1: -1.0})
    assert [found[0] for found in search(2, 1.0, make_ends(2), model)] == [[0, 1], [0, 2]]


def test_a_stop_string_ends_a_beam_also_across_tokens():
    model = chain(*[{0: -0.5, 1: -1.2}] * 4)
    found = search(2, 0.0, make_ends(4, stops=(b"ab",)), model)
    assert found == [([0, 1], pytest.approx(-1.7), "text"), ([0, 0, 0, 0], pytest.approx(-2.0), "length")]


def test_before_min_tokens_neither_ids_nor_strings_end_a_beam():
    model = chain(*[{0: -0.5}] * 4)
    assert search(1, 1.0, make_ends(4, stop_ids=(0,), min_tokens=2), model)[0][0] == [0, 0, 0]
    assert search(1, 1.0, make_ends(4, stops=(b"a",), min_tokens=2), model)[0][0] == [0, 0, 0]
    assert search(1, 1.0, make_ends(4, stops=(b"aa",), min_tokens=2), model)[0][0] == [0, 0, 0, 0]


def test_forbidden_tokens_are_never_taken_and_a_dead_end_ends_the_search():
    model = chain({0: -0.5, 1: -9999.0}, {0: -9999.0})
    assert search(2, 1.0, make_ends(3), model) == []


@pytest.mark.parametrize("length_penalty", [1e308, -1e308, 500.0, -500.0])
def test_extreme_penalties_stay_within_the_range_of_numbers(length_penalty):
    model = chain(*[{0: -0.5, EOS: -1.0}] * 5)
    assert len(search(2, length_penalty, make_ends(5), model)) == 2
