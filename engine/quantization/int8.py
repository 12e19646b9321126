"""Eight-bit weights and activations: a scale per output of the weight and per row of the input, integer sums.

A row is quantised by itself and integer sums are exact, so a row's result is the same alone and in any batch. There are
two forms of the same numbers, as machines differ in which is faster: torch's integer matmul, and oneDNN's with its own
packed order. Both are symmetric; the second needs unsigned activations, centred at 128. Error on random data: about 1 %
of the output's spread.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from engine.kernels.cpu import operators

MAX_LEVEL = 127


def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each output's weights. weight: (N, K) float32  ->  (N, K) int8 and the scales (N,) float32."""
    scale = weight.abs().amax(dim=1, keepdim=True).div_(MAX_LEVEL).clamp_(min=1e-20)
    return (weight / scale).round_().to(torch.int8), scale.flatten()


def quantize_rows(rows: Iterable[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Do as `quantize_weight` for a matrix that is given some rows at a time."""
    values, scales = zip(*(quantize_weight(part) for part in rows), strict=True)
    return torch.cat(values), torch.cat(scales)


class Int8Weight:
    """A weight for torch's integer matmul. values: (N, K) int8   scale: (N,) float32."""

    input_dtype = torch.float32

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self._values = values
        self._transposed = values.t()
        self._scale = scale
        self._matmul = torch.ops.aten._int_mm.default

    @property
    def num_bytes(self) -> int:
        return self._values.nbytes + self._scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) float32."""
        quantized, scales = operators.quantize(x, torch.int8)
        return torch.mul(self._matmul(quantized, self._transposed), self._scale).mul_(scales)

    def clone(self) -> Int8Weight:
        """Return a copy at other addresses, for measuring with cold caches."""
        return Int8Weight(self._values.clone(), self._scale)


class Int8PackedWeight:
    """A weight for oneDNN's quantised linear, which also applies the weight scales."""

    input_dtype = torch.float32

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(values, None)
        self._scale = scale
        self._zero_points = torch.zeros(scale.shape[0], dtype=torch.int64)
        self._matmul = torch.ops.onednn.qlinear_pointwise.default

    @property
    def num_bytes(self) -> int:
        return self._packed.nbytes + self._scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) float32."""
        quantized, scales = operators.quantize(x, torch.uint8)
        product = self._matmul(
            quantized,
            1.0,
            128,
            self._packed,
            self._scale,
            self._zero_points,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return product.mul_(scales)

    def clone(self) -> Int8PackedWeight:
        """Return a copy at other addresses, for measuring with cold caches."""
        other = Int8PackedWeight.__new__(Int8PackedWeight)
        other._packed, other._scale, other._zero_points = self._packed.clone(), self._scale, self._zero_points
        other._matmul = self._matmul
        return other
