"""Log-probabilities of a step, for the rows that ask for them. -inf is reported as -9999.0, which fits into JSON."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.messages import SampledLogprobs
from engine.sampling.ranking import block_maxima, pad_to_blocks, rank

LEAST = -9999.0


@dataclass(frozen=True, slots=True)
class LogprobRow:
    """A row that asks for log-probabilities."""

    row: int
    top: int = 0
    """How many of the most likely tokens to report; -1 for the whole vocabulary."""
    token_ids: tuple[int, ...] = ()
    """If any, report these tokens instead of the most likely."""


class LogprobSnapshot:
    """A copy of the L rows that ask, as log-probabilities (L, V) float32."""

    def __init__(self, logits: torch.Tensor, rows: list[LogprobRow]) -> None:
        self._rows = rows
        self._index = torch.tensor([row.row for row in rows], device=logits.device)
        self._values = logits[self._index].float().log_softmax(1)

    def report(self, token_ids: torch.Tensor) -> dict[int, SampledLogprobs]:
        """Return the report of the sampled `token_ids` (R,) by row number, alternatives best first, ties by id."""
        own = self._values.gather(1, token_ids[self._index][:, None]).clamp_(min=LEAST).squeeze(1).tolist()
        width = self._values.shape[1]
        tops = [0 if row.token_ids else width if row.top < 0 else min(row.top, width) for row in self._rows]
        ids: list[list[int]] = [[] for _ in tops]
        values: list[list[float]] = [[] for _ in tops]
        if max(tops):
            best, best_ids = top_values(self._values, max(tops))
            ids, values = best_ids.tolist(), best.tolist()
        return {
            row.row: SampledLogprobs(own[place], list(row.token_ids), self._values_at(place, row.token_ids))
            if row.token_ids
            else SampledLogprobs(own[place], ids[place][: tops[place]], values[place][: tops[place]])
            for place, row in enumerate(self._rows)
        }

    def _values_at(self, place: int, token_ids: tuple[int, ...]) -> list[float]:
        index = torch.tensor(token_ids, device=self._values.device)
        return self._values[place, index].clamp_(min=LEAST).tolist()


def top_values(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `count` largest of values (L, V) and their ids: best first, ties by id, -inf as LEAST."""
    padded = pad_to_blocks(values)
    best, ids = rank(padded, block_maxima(padded), count)
    return best.clamp_(min=LEAST), ids
