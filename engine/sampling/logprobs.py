"""Natural-log probabilities from raw logits, before masks, penalties and temperature; only for the rows that ask.

-inf is reported as -9999.0, so that a value always fits into JSON.
"""

from __future__ import annotations

import torch

from engine.messages import SampledLogprobs
from engine.sampling.ranking import block_maxima, pad_to_blocks, rank

LEAST = -9999.0


class RawLogprobs:
    """A copy, as log-probabilities (L, V) float32, of the L rows that ask; taken before logits are changed."""

    def __init__(self, logits: torch.Tensor, rows: list[tuple[int, int]]) -> None:
        """`rows`: (number in the batch, count of alternatives; -1 stands for the whole vocabulary)."""
        self._rows = rows
        self._width = logits.shape[1]
        index = torch.tensor([row for row, _ in rows], device=logits.device)
        self._values = logits[index].float().log_softmax(1)

    def of(self, token_ids: torch.Tensor) -> dict[int, SampledLogprobs]:
        """Report the sampled `token_ids` (R,) by number of row, with the alternatives best first, ties by id."""
        index = torch.tensor([row for row, _ in self._rows], device=token_ids.device)
        own = self._values.gather(1, token_ids[index][:, None]).clamp_(min=LEAST).squeeze(1).tolist()
        tops = [self._width if top < 0 else min(top, self._width) for _, top in self._rows]
        ids: list[list[int]] = [[] for _ in tops]
        values: list[list[float]] = [[] for _ in tops]
        if max(tops):
            padded = pad_to_blocks(self._values)
            best, best_ids = rank(padded, block_maxima(padded), max(tops))
            ids, values = best_ids.tolist(), best.clamp_(min=LEAST).tolist()
        return {
            row: SampledLogprobs(own[place], ids[place][:top], values[place][:top])
            for place, ((row, _), top) in enumerate(zip(self._rows, tops, strict=True))
        }
