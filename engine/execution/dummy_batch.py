"""Made-up steps and sequences, for what a model computes while it loads and for benchmarks."""

from __future__ import annotations

import torch

from engine.api.sampling import LogprobOptions, SamplingParams, StopRules
from engine.attention.backend import StepLayout
from engine.execution.batch import StepBatch
from engine.messages import AddSequence
from engine.sequence import Sequence

CONTEXT = 256
TOKENS = 16
"""How many different ones there are; any vocabulary has as many."""


def dummy_sequence(seq_id: int, prompt_ids: list[int], block_ids: list[int], max_tokens: int = 1) -> Sequence:
    """Return a sequence without any wishes that already holds its blocks."""
    request = AddSequence(
        seq_id, prompt_ids, [], SamplingParams(seed=0), StopRules(), LogprobOptions(), [], max_tokens, cache_root=b""
    )
    return Sequence(request, block_ids=block_ids)


def dummy_batch(number: int, num_rows: int, max_tokens: int, block_size: int) -> StepBatch:
    """Build a batch of the last `num_rows` tokens of one sequence, behind a context of CONTEXT tokens if `max_tokens`
    allow it.

    Consecutive values of `number` give different tokens at different positions. Uses the first cache blocks, which are
    always written again before they are read.
    """
    end = max(num_rows, min(CONTEXT + number % 2, max_tokens - 1 + number % 2))
    token_ids = torch.arange(num_rows).add_(number).remainder_(min(num_rows + 1, TOKENS))
    positions = torch.arange(end - num_rows, end)
    blocks = list(range(-(-end // block_size)))
    return StepBatch(token_ids, positions, StepLayout([num_rows], [end], positions, [blocks], int(num_rows == 1)), None)
