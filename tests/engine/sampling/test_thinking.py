"""ThinkingTrack: begin and end of reasoning by tokens alone, its budget, and rollback."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Thinking
from engine.sampling.thinking import ThinkingTrack

TOKENS = st.integers(0, 3)
MARKERS = st.lists(TOKENS, min_size=1, max_size=3)
OTHERS = st.lists(MARKERS, max_size=2)
OUTPUTS = st.lists(TOKENS, max_size=12)
THINKING = st.builds(Thinking, MARKERS, MARKERS, st.booleans(), st.none() | st.integers(0, 6), OTHERS, OTHERS)


def find(output_ids: list[int], markers: list[list[int]], start: int) -> tuple[int, int] | None:
    """Return the end and the length of the first of `markers` from `start` on; the longest of several."""
    for end in range(start + 1, len(output_ids) + 1):
        sizes = [
            len(marker)
            for marker in markers
            if end - len(marker) >= start and output_ids[end - len(marker) : end] == marker
        ]
        if sizes:
            return end, max(sizes)
    return None


def snapshot(track: ThinkingTrack) -> tuple[object, ...]:
    return track.is_open, track.is_over, track.answer_start, track.opening_ids, track.forced_id, track.num_tokens


@given(thinking=THINKING, output_ids=OUTPUTS)
def test_the_state_equals_a_plain_search_for_the_markers(thinking: Thinking, output_ids: list[int]) -> None:
    track = ThinkingTrack(thinking)
    track.update(output_ids)
    starts = [thinking.start_ids, *thinking.other_starts]
    begun = 0 if thinking.is_open else min((len(ids) for ids in starts if output_ids[: len(ids)] == ids), default=None)
    if begun is None:
        going_on = {ids[len(output_ids)] for ids in starts if ids[: len(output_ids)] == output_ids}
        assert set(track.opening_ids) == going_on
        assert (track.is_open, track.is_over, track.answer_start) == (False, not going_on, 0)
        return
    end = find(output_ids, [thinking.end_ids, *thinking.other_ends], begun)
    assert (track.is_over, track.is_open) == (end is not None, end is None)
    assert track.answer_start == (end[0] if end else 0)
    assert track.num_tokens == (end[0] - end[1] - begun if end else len(output_ids) - begun)


@given(thinking=THINKING, output_ids=OUTPUTS)
def test_a_forced_marker_ends_the_reasoning_and_is_never_longer_than_needed(
    thinking: Thinking, output_ids: list[int]
) -> None:
    track = ThinkingTrack(thinking)
    output_ids = list(output_ids)
    track.update(output_ids)
    num_forced = 0
    while (forced := track.forced_id) is not None:
        output_ids.append(forced)
        track.update(output_ids)
        num_forced += 1
    assert num_forced <= max(len(end) for end in (thinking.end_ids, *thinking.other_ends))
    assert not num_forced or (track.is_over and track.answer_start == len(output_ids))


@given(
    thinking=THINKING,
    output_ids=OUTPUTS,
    drafts=OUTPUTS,
    num_accepted=st.integers(0, 12),
    drawn=TOKENS,
)
def test_rejected_tokens_leave_no_trace_in_the_tracker(
    thinking: Thinking, output_ids: list[int], drafts: list[int], num_accepted: int, drawn: int
) -> None:
    track = ThinkingTrack(thinking)
    for size in range(len(drafts) + 1):
        track.update(output_ids + drafts[:size])
    final = output_ids + drafts[:num_accepted] + [drawn]
    track.update(final)
    fresh = ThinkingTrack(thinking)
    fresh.update(final)
    assert snapshot(track) == snapshot(fresh)


def test_forced_end_continues_a_marker_that_the_model_has_begun() -> None:
    track = ThinkingTrack(Thinking([], [7, 8, 9], is_open=True, budget=3))
    track.update([1, 2])
    assert track.forced_id is None
    track.update([1, 2, 7])
    assert track.forced_id == 8


def test_reasoning_is_over_if_the_first_token_does_not_open_it() -> None:
    track = ThinkingTrack(Thinking([5, 6], [7], is_open=False, budget=0))
    track.update([])
    assert (track.opening_ids, track.is_over) == ((5,), False)
    track.update([5, 4])
    assert (track.is_over, track.answer_start, track.forced_id) == (True, 0, None)


def test_every_spelling_of_a_marker_is_recognised() -> None:
    track = ThinkingTrack(Thinking([5], [7, 8], is_open=True, other_ends=[[17, 8], [7, 18]]))
    for output_ids, is_over in (([1, 7, 8], True), ([1, 17, 8], True), ([1, 7, 18], True), ([1, 17, 18], False)):
        track.update([])
        track.update(output_ids)
        assert track.is_over == is_over
