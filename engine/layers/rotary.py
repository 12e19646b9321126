"""Rotary position embedding (https://arxiv.org/abs/2104.09864) as one complex product.

The two numbers of each rotated pair are adjacent in queries and keys: loading reorders the rows of their weights, which
leaves dot products unchanged. So a head is a row of D/2 complex numbers and a rotation is one multiplication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engine.kernels.cpu import operators


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """The rule that stretches frequencies beyond the trained context.

    `kind`: "default", "linear", "llama3" or "yarn".
    """

    kind: str = "default"
    factor: float = 1.0
    original_length: int = 0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """Multiplies queries and keys (yarn only; None: 0.1 ln(factor) + 1)."""


KINDS = ("default", "linear", "llama3", "yarn")


class RotaryTable:
    """A table of cos + i sin for every position. rotations: (P, D/2) complex64."""

    def __init__(self, rotations: torch.Tensor) -> None:
        self._rotations = rotations

    @classmethod
    def build(
        cls,
        num_positions: int,
        head_size: int,
        theta: float,
        scaling: RopeScaling,
        device: torch.device,
        frequency_factors: torch.Tensor | None = None,
    ) -> RotaryTable:
        """Compute the table. `frequency_factors`: divisors (D/2,) that some files hold instead of a scaling rule."""
        frequencies = scaled_frequencies(head_size, theta, scaling)
        if frequency_factors is not None:
            frequencies = frequencies / frequency_factors
        angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
        size = torch.full_like(angles, _attention_factor(scaling))
        return cls(torch.polar(size, angles).to(device))

    def at(self, positions: torch.Tensor) -> torch.Tensor:
        """Look up the rotations of a step, for all layers. positions: (T,) int64  ->  (T, 1, D/2) complex64."""
        return self._rotations.index_select(0, positions).unsqueeze(1)


def rotate(heads: torch.Tensor, num_rotated: int, rotations: torch.Tensor) -> torch.Tensor:
    """Rotate adjacent pairs of the first heads on a CPU; the input may be changed.

    heads: (T, H, D)   rotations: (T, 1, D/2)  ->  (T, H, D) float32. On CUDA attention rotates as it stores
    (`StepAttention.attend_heads`).
    """
    return operators.rotate(heads, num_rotated, rotations)


def adjacent_pairs(num_heads: int, head_size: int) -> torch.Tensor:
    """Return the row order that turns heads stored as two halves into adjacent pairs: (H * D,) int64."""
    half = torch.arange(head_size // 2)
    within = torch.stack((half, half + head_size // 2), dim=1).flatten()
    return (torch.arange(num_heads)[:, None] * head_size + within).flatten()


def scaled_frequencies(head_size: int, theta: float, scaling: RopeScaling) -> torch.Tensor:
    """Return the angle per position of each pair: (D/2,) float32."""
    frequencies = theta ** -(torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "llama3":
        return _llama3_frequencies(frequencies, scaling)
    if scaling.kind == "yarn":
        return _yarn_frequencies(frequencies, head_size, theta, scaling)
    return frequencies


def _llama3_frequencies(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Divide slow frequencies by the factor, keep fast ones, blend between."""
    turns = scaling.original_length * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / scaling.factor)


def _yarn_frequencies(frequencies: torch.Tensor, head_size: int, theta: float, scaling: RopeScaling) -> torch.Tensor:
    """Do as llama3, with a ramp over the pair's index (https://arxiv.org/abs/2309.00071)."""

    def pair_with_turns(turns: float) -> float:
        return head_size * math.log(scaling.original_length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with_turns(scaling.beta_fast)), 0)
    high = min(math.ceil(pair_with_turns(scaling.beta_slow)), head_size - 1)
    divided = ((torch.arange(head_size // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies * (1 - divided + divided / scaling.factor)


def _attention_factor(scaling: RopeScaling) -> float:
    if scaling.kind != "yarn":
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1 if scaling.factor > 1 else 1.0
