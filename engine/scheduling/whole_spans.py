"""Chunks that cut no span of tokens which see each other in both directions, as those of an image do in some models.

A chunk ends before such a span or has all of it. One whose turn it is gets it whole, whatever the step has left, so
steps may be longer than their budget by one span.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.api.errors import ErrorCode, RequestError
from engine.messages import MediaSpan
from engine.sequence import Sequence


def check_spans(spans: Iterable[MediaSpan], most: int) -> None:
    """Raise RequestError for a span of more than `most` tokens that is whole. 0: there is no such bound.

    Called by the worker before it sends a request, and by the scheduler.
    """
    longest = max((span.length for span in spans if span.is_whole), default=0)
    if most and longest > most:
        message = (
            f"an image of {longest} tokens is computed in one step, and steps of this model have at most {most}; "
            "the operator may raise LIGHTCONE_MAX_NUM_BATCHED_TOKENS"
        )
        raise RequestError(ErrorCode.INVALID_VALUE, message, "messages")


def keep_whole(grants: dict[Sequence, int]) -> None:
    """Change how many tokens prompts get, so that no span is cut. Only the first that needs more gets it."""
    has_longer = False
    for sequence, num_tokens in grants.items():
        span = sequence.span_cut_at(sequence.num_computed + num_tokens) if num_tokens else None
        if span is None:
            continue
        start, end = span
        is_next = start <= sequence.num_computed
        if is_next and not has_longer and end <= sequence.num_placed:
            grants[sequence] = end - sequence.num_computed
            has_longer = True
        else:
            grants[sequence] = max(0, start - sequence.num_computed)


def end_of_least_chunk(sequence: Sequence) -> int:
    """Return the position behind the fewest tokens that a step can compute of a sequence."""
    end = sequence.num_computed + 1
    span = sequence.span_cut_at(end)
    return span[1] if span is not None else end
