"""Results of a step about prompts, from its hidden states: log-probabilities of their own tokens, vectors and scores.

Logits are computed for slices of rows, so a long prompt never becomes a matrix of (T, V). The partial sum of a vector
is kept at the sequence, so a prompt may take any number of steps and be preempted. Sums are float64, so a vector does
not depend on how its prompt was cut.

Letters: T positions of a step, N of them that score a token, V vocabulary, E width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.api.request import EmbedOptions
from engine.messages import SampledLogprobs
from engine.sampling.logprobs import LEAST, top_values
from engine.sequence import Chunk, StepPlan

SLICE_ROWS = 32
MEAN = "mean"


@dataclass(frozen=True, slots=True)
class PromptResults:
    """The log-probabilities and the vectors of one step, by `seq_id`."""

    scores: dict[int, list[SampledLogprobs]] = field(default_factory=dict)
    vectors: dict[int, list[float]] = field(default_factory=dict)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self.scores or seq_id in self.vectors


def has_prompt_results(plan: StepPlan) -> bool:
    """Return True if any chunk of a step scores tokens, or is part of a prompt that becomes a vector."""
    return any(
        chunk.sequence.embed is not None or (chunk.sequence.request.logprobs.prompt is not None and scored_range(chunk))
        for chunk in plan.chunks
    )


def scored_range(chunk: Chunk) -> range:
    """Return the positions of the prompt tokens that this chunk scores: those after its own that are not reported yet.

    Each comes once and in order, also when a preempted prompt is computed again.
    """
    sequence = chunk.sequence
    if sequence.request.logprobs.prompt is None:
        return range(0)
    first = max(sequence.num_scored, chunk.start + 1)
    return range(first, min(chunk.start + chunk.num_tokens + 1, len(sequence.prompt_ids)))


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
            entries = scores[chunk.sequence.seq_id] = []
            for start in range(0, len(token_ids), SLICE_ROWS):
                part = slice(start, start + SLICE_ROWS)
                entries += _entries(logits_of(rows[part]), token_ids[part], count)
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
    own_values = own.clamp(min=LEAST).squeeze(1).tolist()
    return list(map(SampledLogprobs, own_values, top_ids, top_logprobs, ranks, token_ids))


@dataclass(slots=True)
class PooledStates:
    """The sum (E,) float64 of the first `num_pooled` states of a prompt; for "last", the last state alone."""

    total: torch.Tensor
    num_pooled: int


def pool_states(
    plan: StepPlan,
    hidden: torch.Tensor,
    normed: Callable[[torch.Tensor], torch.Tensor],
    logits_of: Callable[[torch.Tensor], torch.Tensor],
) -> dict[int, list[float]]:
    """Pool the states of a step, hidden (T, E) in the plan's order; return completed vectors and scores by `seq_id`.

    `normed`: the final norm, rows (N, E) -> (N, E) float32. `logits_of`: rows (N, E) -> logits (N, V).
    """
    vectors = {}
    first_row = 0
    for chunk in plan.chunks:
        options = chunk.sequence.embed
        if options is not None:
            rows = hidden[first_row : first_row + chunk.num_tokens]
            sequence, is_end = chunk.sequence, chunk.start + chunk.num_tokens == chunk.sequence.num_tokens
            if sequence.request.score_ids is not None:
                if is_end:
                    vectors[sequence.seq_id] = [_score(logits_of(rows[-1:])[0], sequence.request.score_ids)]
            else:
                _pool_chunk(chunk, options.pooling or MEAN, rows, normed)
                if is_end:
                    vectors[sequence.seq_id] = _vector(sequence.pooled, options)
        first_row += chunk.num_positions
    return vectors


def _pool_chunk(chunk: Chunk, pooling: str, rows: torch.Tensor, normed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Add the rows of a chunk to the sum of its sequence, without positions that a preemption has computed again."""
    sequence = chunk.sequence
    pooled, end = sequence.pooled, chunk.start + chunk.num_tokens
    if pooling != MEAN:
        if end == sequence.num_tokens:
            sequence.pooled = PooledStates(normed(rows[-1:])[0].double(), end)
        return
    done = pooled.num_pooled if pooled is not None else 0
    if end <= done:
        return
    total = normed(rows[max(0, done - chunk.start) :]).sum(0, dtype=torch.float64)
    sequence.pooled = PooledStates(total if pooled is None else pooled.total + total, end)


def _vector(pooled: PooledStates, options: EmbedOptions) -> list[float]:
    """Cut to the dimensions and normalise to length 1, unless the model does not: a mean points where its sum does."""
    total = pooled.total[: options.dimensions]
    if options.normalizes is False:
        return (total / (pooled.num_pooled if options.pooling in (None, MEAN) else 1)).float().tolist()
    return (total / total.norm().clamp(min=torch.finfo(torch.float32).tiny)).float().tolist()


def _score(logits: torch.Tensor, score_ids: list[int]) -> float:
    """Return the probability of the second of two tokens, if no others could come. logits: (V,)"""
    no, yes = logits[score_ids].double()
    return torch.sigmoid(yes - no).item()
