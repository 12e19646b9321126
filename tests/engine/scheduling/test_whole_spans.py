"""Tokens that see each other in both directions are computed in one step, whatever budget and cache are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import RequestError
from engine.attention.cache_groups import CacheGroups
from engine.messages import MediaSpan
from engine.scheduling.scheduler import Scheduler
from tests.engine.scheduling.sequences import make_scheduler, make_sequence, solo_output, step
from tests.examples import examples

IMAGE = 90


def seeing(seq_id, *parts, **options):
    """Make a sequence of parts: a number of text tokens, or the key and the length of an image."""
    prompt, media = [], []
    for part in parts:
        if isinstance(part, int):
            prompt += range(len(prompt), len(prompt) + part)
            continue
        key, length = part
        media.append(MediaSpan(key, len(prompt), length, is_whole=True))
        prompt += [IMAGE] * length
    return make_sequence(seq_id, prompt, media=media, **options)


def chunks(plan):
    return [(chunk.sequence.seq_id, chunk.start, chunk.start + chunk.num_tokens) for chunk in plan.chunks]


def steps(scheduler, limit=1000):
    found = []
    for _ in range(limit):
        plan, _ = step(scheduler)
        if plan is None:
            return found
        found.append(chunks(plan))
    raise AssertionError("the scheduler does not come to an end")


def test_a_chunk_ends_before_a_span_or_has_all_of_it():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(seeing(1, 5, ("a", 6), 3, max_tokens=1))
    assert steps(scheduler) == [[(1, 0, 5)], [(1, 5, 13)], [(1, 13, 14)]]


def test_a_span_longer_than_the_budget_makes_its_step_longer():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(seeing(1, 2, ("a", 20), 2, max_tokens=1))
    assert steps(scheduler) == [[(1, 0, 2)], [(1, 2, 22)], [(1, 22, 24)]]


def test_one_sequence_a_step_gets_more_than_its_part():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    for seq_id, key in ((1, "a"), (2, "b")):
        scheduler.add(seeing(seq_id, (key, 12), 2, max_tokens=1))
    found = steps(scheduler)
    assert found[0] == [(1, 0, 12)]
    assert sum((2, 0, 12) in plan for plan in found) == 1


def test_a_prefix_that_is_found_ends_at_no_place_within_a_span():
    scheduler = make_scheduler(max_num_batched_tokens=64)
    scheduler.add(seeing(1, 6, ("a", 12), 8, max_tokens=1))
    steps(scheduler)
    again, cut = seeing(2, 6, ("a", 12), 4, max_tokens=1), seeing(3, 6, ("a", 12), max_tokens=1)
    scheduler.add(again)
    scheduler.add(cut)
    found = steps(scheduler)
    assert (again.num_cached, cut.num_cached) == (20, 4)
    assert (3, 4, 18) in found[0]


def test_a_span_that_no_step_can_have_is_refused():
    groups = CacheGroups(4, chunk_tokens=8)
    scheduler = Scheduler(64, 4, 8, 8, 100, True, groups=groups)
    with pytest.raises(RequestError, match="an image of 9 tokens is computed in one step"):
        scheduler.add(seeing(1, ("a", 9), 1))
    scheduler.add(seeing(2, ("a", 8), 1))


PARTS = st.lists(st.integers(1, 9) | st.tuples(st.sampled_from("ab"), st.integers(2, 14)), min_size=1, max_size=5)


@given(
    prompts=st.lists(PARTS, min_size=1, max_size=6),
    budget=st.integers(4, 24),
    num_blocks=st.integers(24, 40),
    window=st.sampled_from([0, 3, 9]),
)
@examples(200)
def test_no_step_computes_a_part_of_a_span(prompts, budget, num_blocks, window):
    windows = (0, window) if window else (0,)
    groups = CacheGroups(4, windows, chunk_tokens=max(2 * budget, 14))
    scheduler = Scheduler(num_blocks * len(windows), 4, budget, min(4, budget), 100, True, groups=groups)
    sequences = []
    for seq_id, parts in enumerate(prompts, 1):
        tail = [*parts, 1]
        sequence = seeing(seq_id, *tail, min_tokens=1)
        try:
            scheduler.add(sequence)
        except RequestError:
            continue
        sequences.append(sequence)
    for plan in steps(scheduler):
        for seq_id, start, end in plan:
            spans = next(one for one in sequences if one.seq_id == seq_id).whole_spans
            assert all(end <= low or high <= start or start <= low < high <= end for low, high in spans)
    assert [sequence.output_ids for sequence in sequences] == [solo_output(make_copy(one)) for one in sequences]


def make_copy(sequence):
    return make_sequence(sequence.seq_id, sequence.prompt_ids, min_tokens=1)
