"""One draw per row from weights that need not be normalised: inverse of the cumulative sum, in float64.

The sums run along a row only and in a fixed order, so that a row's result is the same in any batch.
"""

from __future__ import annotations

import torch

from engine.sampling.ranking import BLOCK


def pick(cumulative: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return per row the index (R,) at which `cumulative` (R, N) first exceeds `uniforms` (R,) times its last value.

    Never an index of weight zero: the sum does not grow there.
    """
    total = cumulative[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulative <= target[:, None]).sum(1).clamp_(max=cumulative.shape[1] - 1)


def draw_from_all(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw ids (R,) by weights (R, V), V a multiple of BLOCK: first the block, then the token in it.

    The rest of the block's share of `uniforms` (R,) chooses inside, so one number serves both.
    """
    blocks = weights.view(weights.shape[0], -1, BLOCK)
    cumulative = blocks.sum(2).double().cumsum(1)
    block = pick(cumulative, uniforms)[:, None]
    upper = cumulative.gather(1, block)
    lower = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    rest = ((uniforms[:, None] * cumulative[:, -1:] - lower) / (upper - lower)).clamp(0.0, 1.0)
    inside = torch.gather(blocks, 1, block[:, :, None].expand(-1, 1, BLOCK)).squeeze(1).double().cumsum(1)
    return block.squeeze(1) * BLOCK + pick(inside, rest.squeeze(1))
