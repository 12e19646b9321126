"""Rotary position embedding (https://arxiv.org/abs/2104.09864) as one complex product.

The two numbers of each rotated pair are adjacent in queries and keys: loading reorders the rows of their weights, which
leaves dot products unchanged. So a head is a row of D/2 complex numbers and a rotation is one multiplication.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from engine.api.errors import ModelLoadError
from engine.kernels.cpu import operators
from engine.layers.embedding import InputRows


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """The rule that stretches frequencies beyond the trained context.

    `kind`: "default", "linear", "llama3", "yarn", "longrope" (https://arxiv.org/abs/2402.13753) or "proportional"
    (Gemma 4).
    """

    kind: str = "default"
    factor: float = 1.0
    original_length: int = 0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    """Multiplies queries and keys (yarn and longrope; None: yarn's 0.1 ln(factor) + 1)."""
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    """Divisors of the frequencies of each pair (longrope); empty if the file holds them as tensors."""
    share: float = 1.0
    """The part of the pairs of a head that turns; the others have frequency 0 (proportional)."""
    is_long: bool = False
    """The long factors are used: the context is opened for more than `original_length`."""


NUM_AXES = 3
"""Time, row and column."""
KINDS = ("default", "linear", "llama3", "yarn", "longrope", "proportional")


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of one kind of layer.

    `size`: the first numbers of a head are rotated, the others kept; 0: the layer sees no positions.
    """

    theta: float
    size: int
    head_size: int
    scaling: RopeScaling = RopeScaling()
    is_divided: bool = True
    """Divisors of frequencies that a GGUF file holds are for this rotation."""
    growth: float = 0.0
    """Of queries: all numbers of a head at position p are multiplied by 1 + growth * ln(1 + p // growth_length)."""
    growth_length: int = 1
    sections: tuple[int, ...] = ()
    """Pairs that turn by time, row and column of a token of an image, where text turns all of them by its position
    (M-RoPE, https://arxiv.org/abs/2409.12191); empty: all turn by the position."""
    is_interleaved: bool = False
    """Pairs of the three lie in turns, and what is left of them turns by time (Qwen3-VL)."""

    def check(self, source: str) -> None:
        """Raise ModelLoadError if the values do not fit together."""
        scaling = self.scaling
        if scaling.kind == "llama3" and scaling.high_frequency_factor <= scaling.low_frequency_factor:
            raise ModelLoadError(f"{source}: high_freq_factor must be above low_freq_factor")
        if scaling.kind == "yarn" and self.theta <= 1:
            raise ModelLoadError(f"{source}: rope_theta must be above 1, got {self.theta}")
        for factors in (scaling.short_factors, scaling.long_factors):
            if factors and len(factors) != self.size // 2:
                raise ModelLoadError(
                    f"{source}: short_factor and long_factor must have {self.size // 2} numbers, got {len(factors)}"
                )
        if self.sections and (len(self.sections) != NUM_AXES or sum(self.sections) != self.size // 2):
            raise ModelLoadError(
                f"{source}: mrope_section must be {NUM_AXES} numbers whose sum is {self.size // 2}, got {self.sections}"
            )

    @property
    def axes(self) -> list[int]:
        """By which of time, row and column each rotated pair turns (0, 1, 2)."""
        if not self.is_interleaved:
            return [axis for axis, count in enumerate(self.sections) for _ in range(count)]
        num_pairs = self.size // 2
        turns = (pair % NUM_AXES for pair in range(num_pairs))
        return [axis if pair < NUM_AXES * self.sections[axis] else 0 for pair, axis in enumerate(turns)]

    def opened(self, length: int) -> Rotation:
        """Return the rotation of a context of `length` tokens. All its positions have the same factors."""
        is_long = self.scaling.kind == "longrope" and length > self.scaling.original_length
        return replace(self, scaling=replace(self.scaling, is_long=True)) if is_long else self


class RotaryEmbedding:
    """The rotations of a step, cos + i sin, computed from its positions for each kind of layer.

    frequencies, magnitudes: (N, D/2) float32, of N kinds, D of the largest heads. Pairs that are not rotated have
    frequency 0, magnitude 1.
    """

    def __init__(
        self,
        frequencies: torch.Tensor,
        magnitudes: torch.Tensor,
        growth: tuple[torch.Tensor, torch.Tensor] | None,
        axes: torch.Tensor | None = None,
    ) -> None:
        """`growth`: factors and lengths, (N,), of kinds whose magnitudes grow with the position; None if none does.

        `axes`: by which of the places of an image's token each pair turns, (D/2,) int64; None: by none.
        """
        self._axes = axes
        self._frequencies = frequencies[:, None]
        self._magnitudes = magnitudes[:, None]
        self._growth = None if growth is None else tuple(values[:, None] for values in growth)

    @classmethod
    def build(
        cls, rotations: Sequence[Rotation], device: torch.device, frequency_factors: torch.Tensor | None = None
    ) -> RotaryEmbedding:
        """`frequency_factors`: divisors (D/2,) that some files hold instead of a scaling rule."""
        num_pairs = max(rotation.head_size for rotation in rotations) // 2
        frequencies, magnitudes = torch.zeros(len(rotations), num_pairs), torch.ones(len(rotations), num_pairs)
        for number, rotation in enumerate(rotations):
            rotated = rotation.size // 2
            frequencies[number, :rotated] = scaled_frequencies(rotation.size, rotation.theta, rotation.scaling)
            magnitudes[number, :rotated] = _attention_factor(rotation.scaling)
        if frequency_factors is not None:
            for number, rotation in enumerate(rotations):
                if rotation.is_divided and rotation.size == 2 * len(frequency_factors):
                    frequencies[number, : len(frequency_factors)] /= frequency_factors
        growth = None
        if any(rotation.growth for rotation in rotations):
            factors = torch.tensor([rotation.growth for rotation in rotations], device=device)
            growth = factors, torch.tensor([rotation.growth_length for rotation in rotations], device=device)
        axes = None
        if rotations[0].sections:
            axes = torch.zeros(num_pairs, dtype=torch.int64, device=device)
            axes[: rotations[0].size // 2] = torch.tensor(rotations[0].axes, device=device)
        return cls(frequencies.to(device), magnitudes.to(device), growth, axes)

    def at(self, positions: torch.Tensor, media: tuple[InputRows, ...] = ()) -> torch.Tensor:
        """Compute the rotations of a step. positions: (T,) int64  ->  (N, T, 1, D/2) complex64.

        `media`: rows that may have places of their own.
        """
        angles = positions[:, None] * self._frequencies
        for rows in media:
            if rows.places is not None and self._axes is not None:
                places = rows.places.index_select(0, self._axes).t()
                angles[:, rows.first : rows.first + len(places)] = places * self._frequencies
        magnitudes = self._magnitudes
        if self._growth is not None:
            factors, lengths = self._growth
            magnitudes = magnitudes * (1 + factors * torch.log1p((positions // lengths).float())).unsqueeze(2)
        return torch.polar(magnitudes.expand_as(angles), angles).unsqueeze(2)


def rotate(heads: torch.Tensor, num_rotated: int, rotations: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Rotate adjacent pairs of some heads, from `first` on, on a CPU; the input may be changed.

    heads: (T, H, D)   rotations: (T, 1, D/2), rows may be apart  ->  (T, H, D) float32. On CUDA attention rotates as it
    stores (`StepAttention.attend_heads`).
    """
    return operators.rotate(heads, num_rotated, rotations, first)


def adjacent_pairs(num_heads: int, head_size: int, rotated: int) -> torch.Tensor:
    """Return the row order that turns heads, of which the first `rotated` numbers are stored as two halves, into
    adjacent pairs: (H * D,) int64.
    """
    half = torch.arange(rotated // 2)
    within = torch.cat((torch.stack((half, half + rotated // 2), dim=1).flatten(), torch.arange(rotated, head_size)))
    return (torch.arange(num_heads)[:, None] * head_size + within).flatten()


def scaled_frequencies(head_size: int, theta: float, scaling: RopeScaling) -> torch.Tensor:
    """Return the angle per position of each pair: (D/2,) float32."""
    frequencies = theta ** -(torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "proportional":
        num_turned = int(scaling.share * head_size // 2)
        return torch.where(torch.arange(head_size // 2) < num_turned, frequencies / scaling.factor, 0.0)
    if scaling.kind == "longrope":
        factors = scaling.long_factors if scaling.is_long else scaling.short_factors
        return frequencies / torch.tensor(factors) if factors else frequencies
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
    if scaling.kind not in ("yarn", "longrope"):
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1 if scaling.factor > 1 else 1.0
