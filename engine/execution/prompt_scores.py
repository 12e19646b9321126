"""Log-probabilities of a prompt's own tokens, from the hidden states of the steps that compute it.

Logits are computed for slices of rows: a long prompt never becomes a matrix of (T, V).

Letters: T positions of a step, N of them that score a token, V vocabulary, E width of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.messages import SampledLogprobs
from engine.sampling.logprobs import LEAST, top_values
from engine.scheduling.plan import Chunk, StepPlan

SLICE_ROWS = 32


def scored_range(chunk: Chunk) -> range:
    """Return the positions of the prompt tokens that this chunk scores: those after its own that are not reported yet.

    Each comes once and in order, also when a preempted prompt is computed again.
    """
    sequence = chunk.sequence
    if sequence.request.logprobs.prompt is None:
        return range(0)
    first = max(sequence.num_scored, chunk.start + 1)
    return range(first, min(chunk.start + chunk.num_tokens + 1, len(sequence.prompt_ids)))


def is_scored(plan: StepPlan) -> bool:
    """Return True if any chunk of a step scores tokens."""
    return any(chunk.sequence.request.logprobs.prompt is not None and scored_range(chunk) for chunk in plan.chunks)


def score_prompts(
    plan: StepPlan, hidden: torch.Tensor, logits_of: Callable[[torch.Tensor], torch.Tensor]
) -> dict[int, list[SampledLogprobs]]:
    """Return the entries of each sequence that has any, by `seq_id`. hidden: (T, E) in the plan's order"""
    scores: dict[int, list[SampledLogprobs]] = {}
    first_row = 0
    for chunk in plan.chunks:
        places = scored_range(chunk)
        if places:
            rows = hidden[first_row + places.start - 1 - chunk.start : first_row + places.stop - 1 - chunk.start]
            token_ids = chunk.sequence.prompt_ids[places.start : places.stop]
            count = chunk.sequence.request.logprobs.prompt or 0
            scores[chunk.sequence.seq_id] = [
                entry
                for start in range(0, len(token_ids), SLICE_ROWS)
                for entry in _entries(
                    logits_of(rows[start : start + SLICE_ROWS]), token_ids[start : start + SLICE_ROWS], count
                )
            ]
        first_row += chunk.num_positions
    return scores


def _entries(logits: torch.Tensor, token_ids: list[int], count: int) -> list[SampledLogprobs]:
    """Return the entries for logits (N, V) and the token of each row, with `count` alternatives (-1: all)."""
    values = logits.float().log_softmax(1)
    width = values.shape[1]
    index = torch.tensor(token_ids, device=values.device)[:, None]
    own = values.gather(1, index)
    is_lower_id = torch.arange(width, device=values.device) < index
    ranks = ((values > own) | ((values == own) & is_lower_id)).sum(1).add_(1).tolist()
    top_ids: list[list[int]] = [[] for _ in token_ids]
    top_logprobs: list[list[float]] = [[] for _ in token_ids]
    if count:
        best, best_ids = top_values(values, width if count < 0 else min(count, width))
        top_ids, top_logprobs = best_ids.tolist(), best.tolist()
    return [
        SampledLogprobs(logprob, ids, logprobs, rank, token_id)
        for logprob, ids, logprobs, rank, token_id in zip(
            own.clamp(min=LEAST).squeeze(1).tolist(), top_ids, top_logprobs, ranks, token_ids, strict=True
        )
    ]
