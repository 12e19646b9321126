"""Temperature, min_p, top_k and top_p, in this order, and the draw from what they leave.

Rows without top_k and top_p draw from the whole vocabulary and are never sorted. For the others only as many tokens are ranked as the
filters can keep: top_k says how many, and for top_p the count grows until the mass is reached. Tokens equal to the k-th survive top_k;
top_p keeps the smallest set of most likely tokens that reaches the mass, equal ones by id.

Letters: R rows, V vocabulary (padded to blocks), N ranked tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.sampling.draw import draw_from_all, pick
from engine.sampling.ranking import BLOCK, rank

FIRST_RANKS = 128
TIE_RANKS = 16
GROWTH = 8


@dataclass(frozen=True, slots=True)
class Filters:
    """Parameters of R rows that draw, each (R,) on the device. `top_k` 0 and `top_p` 1 are off; `temperature` is at least 0.01."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    max_top_k: int
    has_min_p: bool
    has_unbounded: bool
    """Some row has top_p without top_k, so that its mass is relative to the whole vocabulary."""

    def select(self, rows: torch.Tensor) -> Filters:
        """Return the parameters of some rows."""
        return Filters(
            self.temperature[rows],
            self.top_k[rows],
            self.top_p[rows],
            self.min_p[rows],
            self.max_top_k,
            self.has_min_p,
            self.has_unbounded,
        )


def weigh(logits: torch.Tensor, best: torch.Tensor, filters: Filters) -> torch.Tensor:
    """Overwrite logits (R, V) with weights relative to the most likely token, `best` (R,), after temperature and min_p."""
    weights = logits.sub_(best[:, None]).div_(filters.temperature[:, None]).exp_()
    if filters.has_min_p:
        weights.masked_fill_(weights < filters.min_p[:, None], 0.0)
    return weights


def draw_unfiltered(
    logits: torch.Tensor, maxima: torch.Tensor, best: torch.Tensor, filters: Filters, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw ids (R,) of rows that have neither top_k nor top_p. Overwrites logits (R, V); `maxima` are not needed."""
    return draw_from_all(weigh(logits, best, filters), uniforms)


def draw_filtered(logits: torch.Tensor, maxima: torch.Tensor, best: torch.Tensor, filters: Filters, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw ids (R,) of rows that have top_k, top_p or both."""
    totals = None
    if filters.has_unbounded:
        totals = weigh(logits.clone(), best, filters).view(logits.shape[0], -1, BLOCK).sum(2).double().cumsum(1)[:, -1]
    count = filters.max_top_k + TIE_RANKS if filters.max_top_k else 0
    count = max(count, FIRST_RANKS) if filters.has_unbounded else count
    return _draw_ranked(logits, maxima, best, filters, uniforms, totals, count)


def _draw_ranked(
    logits: torch.Tensor,
    maxima: torch.Tensor,
    best: torch.Tensor,
    filters: Filters,
    uniforms: torch.Tensor,
    totals: torch.Tensor | None,
    count: int,
) -> torch.Tensor:
    """Draw from the `count` best tokens; rows for which they are too few are ranked again, deeper."""
    values, ids = rank(logits, maxima, count)
    num_ranked = values.shape[1]
    weights = ((values - best[:, None]) / filters.temperature[:, None]).double().exp_()
    is_last_zero = weights[:, -1] == 0
    if filters.has_min_p:
        weights.masked_fill_(weights < filters.min_p[:, None], 0.0)
    has_top_k = filters.top_k > 0
    least = values.gather(1, (filters.top_k - 1).clamp(0, num_ranked - 1)[:, None])
    weights.masked_fill_((values < least) & has_top_k[:, None], 0.0)
    cumulative = weights.cumsum(1)
    total = cumulative[:, -1]
    if totals is not None:
        total = torch.where(has_top_k, total, totals)
    mass = filters.top_p * total
    is_kept = (cumulative - weights < mass[:, None]) & (weights > 0)
    is_kept[:, 0] = True
    kept = torch.where(is_kept, cumulative, 0.0).cummax(1).values
    drawn = ids.gather(1, pick(kept, uniforms)[:, None]).squeeze(1)
    if num_ranked == logits.shape[1]:
        return drawn
    is_open = torch.where(has_top_k, values[:, -1] >= least.squeeze(1), cumulative[:, -1] < mass)
    open_rows = (is_open & (weights[:, -1] > 0) & ~is_last_zero & best.isfinite()).nonzero().flatten()
    if len(open_rows):
        drawn[open_rows] = _draw_ranked(
            logits[open_rows],
            maxima[open_rows],
            best[open_rows],
            filters.select(open_rows),
            uniforms[open_rows],
            None if totals is None else totals[open_rows],
            count * GROWTH,
        )
    return drawn
