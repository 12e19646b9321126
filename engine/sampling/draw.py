"""Draws one token per row from unnormalised weights by inverting the cumulative sum, in float64.

Sums run along a row only and in a fixed order, so a row's result is the same in any batch.

Letters: R rows, V vocabulary (padded to blocks), B blocks of BLOCK logits.
"""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators
from engine.sampling.ranking import BLOCK, open_blocks


def pick(cumulative: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return per row the index (R,) at which `cumulative` (R, N) first exceeds `uniforms` (R,) times its last value.

    Never an index of weight zero: the sum does not grow there.
    """
    total = cumulative[:, -1]
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulative <= target[:, None]).sum(1).clamp_(max=cumulative.shape[1] - 1)


def block_masses(logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Return the mass of each block, (R, V) -> (R, B) float64, relative to the most likely token.

    best, temperature: (R,)
    """
    if logits.device.type == "cpu":
        return operators.weigh_blocks(logits, best, temperature)
    weights = logits.sub(best[:, None]).div_(temperature[:, None]).exp_()
    return weights.view(logits.shape[0], -1, BLOCK).sum(2).double()


def draw_from_all(
    logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, uniforms: torch.Tensor
) -> torch.Tensor:
    """Draw ids (R,) from whole rows of logits (R, V): first the block, then the token in it.

    One random number serves both: the position of the number within the block's share chooses the token.
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
