"""Steps of made-up tokens, for what a model computes while it loads."""

from __future__ import annotations

import torch

from engine.attention.backend import StepLayout
from engine.execution.batch import StepBatch

CONTEXT = 256
TOKENS = 16
"""How many different ones there are; any vocabulary has as many."""


def trial_batch(number: int, num_rows: int, max_tokens: int, block_size: int) -> StepBatch:
    """The last `num_rows` tokens of one sequence, behind a context where `max_tokens` afford it; of adjacent `number`s they differ.

    Written to the first blocks of the cache, whose contents nobody reads before writing them again.
    """
    end = max(num_rows, min(CONTEXT + number % 2, max_tokens - 1 + number % 2))
    token_ids = torch.arange(num_rows).add_(number).remainder_(min(num_rows + 1, TOKENS))
    positions = torch.arange(end - num_rows, end)
    blocks = list(range(-(-end // block_size)))
    return StepBatch(token_ids, positions, StepLayout([num_rows], [end], positions, [blocks], int(num_rows == 1)), None)
