"""Vectors of prompts: the hidden states after the final norm, pooled over the chunks that compute them.

The partial sum is kept at the sequence, so that a prompt may take any number of steps; a preempted one continues from
it. Sums are float64, so that a vector does not depend on how its prompt was cut.

Letters: T positions of a step, E width of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.scheduling.plan import Chunk, StepPlan

MEAN = "mean"


@dataclass(slots=True)
class PooledStates:
    """The sum (E,) float64 of the states of the first `num_pooled` positions of a prompt; for "last", the last state
    alone.
    """

    total: torch.Tensor
    num_pooled: int


def is_pooled(plan: StepPlan) -> bool:
    """Return True if any chunk of a step is part of a prompt that becomes a vector."""
    return any(chunk.sequence.embed is not None for chunk in plan.chunks)


def pool_states(
    plan: StepPlan, hidden: torch.Tensor, normed: Callable[[torch.Tensor], torch.Tensor]
) -> dict[int, list[float]]:
    """Pool the states of a step, hidden (T, E) in the plan's order; return the vectors of completed prompts by
    `seq_id`.

    `normed`: the final norm, rows (N, E) -> (N, E) float32.
    """
    vectors = {}
    first_row = 0
    for chunk in plan.chunks:
        options = chunk.sequence.embed
        if options is not None:
            _pool_chunk(chunk, options.pooling, hidden[first_row : first_row + chunk.num_tokens], normed)
            if chunk.start + chunk.num_tokens == chunk.sequence.num_tokens:
                vectors[chunk.sequence.seq_id] = _vector(chunk.sequence.pooled.total[: options.dimensions])
        first_row += chunk.num_positions
    return vectors


def _pool_chunk(chunk: Chunk, pooling: str, rows: torch.Tensor, normed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Add the rows of a chunk to the sum of its sequence.

    Positions computed again after a preemption are not added again.
    """
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


def _vector(total: torch.Tensor) -> list[float]:
    """Normalise to length 1: a mean and a sum point the same way."""
    return (total / total.norm().clamp(min=torch.finfo(torch.float32).tiny)).float().tolist()
