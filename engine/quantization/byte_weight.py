"""Eight-bit weights on CUDA: one scale per output, unquantised activations, half the reading of a decode step.

Few rows are bound by reading the weights, which the product widens as it loads them (`kernels/cuda/byte_product.py`).
For many rows, above all prompts, widening costs little: some outputs at a time are widened and multiplied by torch.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.kernels.cuda import processor_count
from engine.kernels.cuda.byte_product import MOST_ROWS, multiply, outputs_for, rows_for

FEW_ROWS = 256
OPEN_WEIGHTS = 1 << 26
"""Weights that are widened at a time."""


class ByteWeight:
    """A weight of eight bits. values: (N, K) int8   scale: (N,) float32   dtype: that of the activations.

    `is_invariant`: compute any number of rows by programs of one shape, so that a row's result ignores the batch.
    """

    def __init__(
        self, values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, is_invariant: bool = False
    ) -> None:
        self._values = values
        self._scale = scale
        self._is_invariant = is_invariant
        self._outputs_per_program = outputs_for(len(values), processor_count(values.device))
        self.input_dtype = dtype
        self.num_bytes = values.nbytes + scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) in the dtype of the activations."""
        return self._multiply(x.to(self.input_dtype), None)

    def multiply_add(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Multiply, and add a bias (N,) in the same kernel."""
        return self._multiply(x.to(self.input_dtype), bias)

    def _multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if len(x) > FEW_ROWS and not self._is_invariant:
            return self._multiply_opened(x, bias)
        rows = MOST_ROWS if self._is_invariant else rows_for(len(x))
        outputs = self._outputs_per_program
        return multiply(
            x.contiguous(), self._values, self._scale, bias, rows_per_program=rows, outputs_per_program=outputs
        )

    def _multiply_opened(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        height = max(1, OPEN_WEIGHTS // self._values.shape[1])
        parts = []
        for first in range(0, len(self._values), height):
            part = slice(first, first + height)
            parts.append(functional.linear(x, self._values[part].to(self.input_dtype)).mul_(self._scale[part]))
        product = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return product if bias is None else product.add_(bias)
