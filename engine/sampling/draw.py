"""Temperature, min_p, top_k and top_p, in this order, and the draw from the tokens that survive.

A draw inverts the cumulative sum of unnormalised weights, in float64. Sums run along a row only and in a fixed order,
so a row's result is the same in any batch.

Rows without filters draw from the whole vocabulary and are never sorted. In the other rows only tokens that can survive
are ranked: top_k gives their number; for min_p and top_p the number grows until all others are ruled out. Tokens equal
to the k-th survive top_k. top_p keeps the smallest set of most likely tokens that reaches its share of the mass left by
the filters before it; among equal tokens the lower id goes first.

Letters: R rows, V vocabulary (padded to blocks), B blocks of BLOCK logits, N ranked tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct

import torch

from engine.kernels.cpu import operators
from engine.sampling.ranking import BLOCK, open_blocks, rank, rank_without_sync

FIRST_RANKS = 48
"""Tokens that are ranked first."""
GROWTH = 8
"""The factor by which the number grows while it is too small."""
FIXED_RANKS = 512
"""Tokens that are ranked at once where the host must not synchronise with the device."""
TIE_RANKS = 8
"""Ranked beyond top_k, for tokens equal to the k-th."""

_COUNTER = Struct("<QQ")
_WORD = (1 << 64) - 1


def uniform(seed: int, position: int) -> float:
    """Return the number in [0, 1) of this seed at this position, with all 53 bits of a double.

    It depends on nothing else: not on device, batch or history (docs/decisions/0002-counter-based-sampling.md). Method:
    counter-based generators, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), with BLAKE2b as the
    mixer.
    """
    digest = blake2b(_COUNTER.pack(seed & _WORD, position & _WORD), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


@dataclass(frozen=True, slots=True)
class Filters:
    """The parameters of R rows that draw. Tensors are (R,) on the device; 0 is off, for top_p 1."""

    temperature: torch.Tensor
    """At least 0.01."""
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    max_top_k: int
    has_top_p: bool
    has_min_p: bool
    has_open_mass: bool
    """Some row has top_p alone, so its share is one of the mass of the whole vocabulary."""


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """R rows to draw from. Tensors are (R,) unless their shape is given."""

    logits: torch.Tensor
    """(R, V)."""
    maxima: torch.Tensor
    """(R, B): the largest logit of each block."""
    best: torch.Tensor
    """The largest logit."""
    uniforms: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    total: torch.Tensor | None
    """The mass of the whole row, None if no row has top_p alone."""

    def select(self, rows: torch.Tensor) -> FilteredRows:
        """Copy some of the rows."""
        tensors = {name: getattr(self, name) for name in self.__slots__}
        return FilteredRows(**{name: None if tensor is None else tensor[rows] for name, tensor in tensors.items()})


def pick(cumulative: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return per row the index (R,) at which `cumulative` (R, N) first exceeds `uniforms` (R,) times its last value."""
    total = cumulative[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulative <= target[:, None]).sum(1).clamp_(max=cumulative.shape[1] - 1)


def block_masses(logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Return the mass of each block (R, B) float64, relative to the largest logit. logits: (R, V)  others: (R,)"""
    if logits.device.type == "cpu":
        return operators.weigh_blocks(logits, best, temperature)
    weights = logits.sub(best[:, None]).div_(temperature[:, None]).exp_()
    return weights.view(logits.shape[0], -1, BLOCK).sum(2).double()


def draw_from_all(
    logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw ids (R,) from whole rows of logits (R, V): first the block, then the token in it.

    The position of the random number within the block's share chooses the token.
    """
    draw = operators.draw if logits.device.type == "cpu" else draw_in_torch
    return draw(logits, best, temperature, uniforms)


def draw_in_torch(
    logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw from whole rows on any device."""
    cumulative = block_masses(logits, best, temperature).cumsum(1)
    block = pick(cumulative, uniforms)[:, None]
    upper = cumulative.gather(1, block)
    lower = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    rest = ((uniforms[:, None] * cumulative[:, -1:] - lower) / (upper - lower)).clamp(0.0, 1.0)
    inside = ((open_blocks(logits, block) - best[:, None]) / temperature[:, None]).double().exp_().cumsum(1)
    return block.squeeze(1) * BLOCK + pick(inside, rest.squeeze(1))


def draw_filtered_without_sync(
    logits: torch.Tensor, maxima: torch.Tensor, best: torch.Tensor, filters: Filters, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw ids (R,) as `draw_filtered` does, without synchronising with the device.

    Also return the rows (R,) that `draw_filtered` must draw, as their filters leave more than FIXED_RANKS tokens.
    """
    rows = _filtered_rows(logits, maxima, best, filters, uniforms)
    values, ids = rank_without_sync(logits, max(filters.max_top_k + TIE_RANKS, FIXED_RANKS))
    return _draw_from(rows, filters, values, ids)


def draw_filtered(
    logits: torch.Tensor, maxima: torch.Tensor, best: torch.Tensor, filters: Filters, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw ids (R,) of rows that have any of top_k, top_p and min_p."""
    rows = _filtered_rows(logits, maxima, best, filters, uniforms)
    return _draw_ranked(rows, filters, max(filters.max_top_k + TIE_RANKS, FIRST_RANKS))


def _filtered_rows(
    logits: torch.Tensor, maxima: torch.Tensor, best: torch.Tensor, filters: Filters, uniforms: torch.Tensor
) -> FilteredRows:
    total = block_masses(logits, best, filters.temperature).sum(1) if filters.has_open_mass else None
    return FilteredRows(
        logits, maxima, best, uniforms, filters.temperature, filters.top_k, filters.top_p, filters.min_p, total
    )


def _draw_ranked(rows: FilteredRows, filters: Filters, count: int) -> torch.Tensor:
    """Draw from the `count` best tokens. Rows that need more are ranked again with GROWTH times as many."""
    drawn, is_unfinished = _draw_from(rows, filters, *rank(rows.logits, rows.maxima, count))
    if count >= rows.logits.shape[1]:
        return drawn
    unfinished = is_unfinished.nonzero().flatten()
    if len(unfinished):
        drawn[unfinished] = _draw_ranked(rows.select(unfinished), filters, count * GROWTH)
    return drawn


def _draw_from(
    rows: FilteredRows, filters: Filters, values: torch.Tensor, ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw from ranked tokens (R, N). Also return the rows (R,) for which more tokens must be ranked."""
    weights = ((values - rows.best[:, None]) / rows.temperature[:, None]).double().exp_()
    if filters.has_min_p:
        weights.masked_fill_(weights < rows.min_p[:, None], 0.0)
    if filters.max_top_k:
        least = values.gather(1, (rows.top_k - 1).clamp(0, values.shape[1] - 1)[:, None])
        weights.masked_fill_((values < least) & (rows.top_k > 0)[:, None], 0.0)
    is_open = weights[:, -1] > 0
    cumulative = weights.cumsum(1)
    if filters.has_top_p:
        total = cumulative[:, -1]
        if rows.total is not None:
            is_alone = (rows.top_k == 0) & (rows.min_p == 0)
            total = torch.where(is_alone, rows.total, total)
            is_open = is_open & ~(is_alone & (total * rows.top_p <= cumulative[:, -1]))
        is_kept = cumulative - weights < (rows.top_p * total)[:, None]
        is_kept[:, 0] = True
        cumulative = torch.where(is_kept, cumulative, 0.0).cummax(1).values
    drawn = ids.gather(1, pick(cumulative, rows.uniforms)[:, None]).squeeze(1)
    return drawn, is_open & rows.best.isfinite() & (values.shape[1] < rows.logits.shape[1])
