"""Repetition is detected at the first completing token, at constant cost per token."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import RepetitionRule
from engine.outputs.stop import RepetitionFinder


def repeats(ids, rule):
    """Apply the definition to all of the ids."""
    for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
        length = size * rule.min_count
        if len(ids) >= length and ids[-length:] == ids[-size:] * rule.min_count:
            return True
    return False


rules = st.builds(
    lambda sizes, count: RepetitionRule(max(sizes), min(sizes), count),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(2, 4),
)


@given(st.lists(st.integers(0, 1), max_size=40), rules)
def test_repeats_are_reported_after_the_tokens_of_the_definition(ids, rule):
    finder = RepetitionFinder(rule)
    assert [finder.feed(token) for token in ids] == [repeats(ids[: index + 1], rule) for index in range(len(ids))]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(2, 5), st.lists(st.integers(0, 2), max_size=10))
def test_a_pattern_is_found_when_it_is_complete_wherever_it_begins(pattern, count, before):
    rule = RepetitionRule(len(pattern), len(pattern), count)
    finder = RepetitionFinder(rule)
    found = [finder.feed(token) for token in [*before, *(pattern * count)]]
    assert found[-1]


RANDOM = random.Random(1)
TEXT = [RANDOM.randrange(100) for _ in range(6000)]
RUNS = [token for length in range(500, 488, -1) for token in [0] * length + [1]]


@pytest.mark.parametrize("ids", [TEXT, RUNS], ids=["text", "runs"])
def test_work_per_token_is_bounded_by_the_number_of_pattern_lengths(ids):
    """A new comparison per pattern length would take hundreds of thousands of steps per token."""
    finder, num_compared = RepetitionFinder(RepetitionRule(1024, 512, 2)), 0
    counted = finder._num_repeating

    def count(size, most):
        nonlocal num_compared
        result = counted(size, most)
        num_compared += min(result + 1, most)
        return result

    finder._num_repeating = count
    assert not any(map(finder.feed, ids))
    assert num_compared <= len(ids) * 513
