"""Eight-bit weights on CUDA: one scale for each output, activations as they are. They halve what a decode step reads, and the memory.

A few rows are bound by reading the weights, and the product opens them on their way (`kernels/cuda/byte_product.py`). For many rows,
prompts above all, the weights are opened some outputs at a time and multiplied by torch: opening costs little beside that many products.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.kernels.cuda.byte_product import MOST_ROWS, multiply, outputs_for, rows_for

FEW_ROWS = 256
OPEN_WEIGHTS = 1 << 26
"""Numbers that are opened at a time."""
PROCESSORS_OF_TESTS = 2


class ByteWeight:
    """values: (N, K) int8   scale: (N,) float32   dtype: that of the activations.

    `is_invariant`: every number of rows goes through one program of one shape, so that a row's result is the same in any crowd.
    """

    def __init__(
        self, values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, is_invariant: bool = False
    ) -> None:
        self._values = values
        self._scale = scale
        self._dtype = dtype
        self._is_invariant = is_invariant
        device = values.device
        num_processors = (
            torch.cuda.get_device_properties(device).multi_processor_count
            if device.type == "cuda"
            else PROCESSORS_OF_TESTS
        )
        self._outputs_per_program = outputs_for(len(values), num_processors)

    @property
    def num_bytes(self) -> int:
        return self._values.nbytes + self._scale.nbytes

    @property
    def input_dtype(self) -> torch.dtype:
        return self._dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: (R, K)  ->  (R, N) in the dtype of the activations."""
        return self._multiply(x.to(self._dtype), None)

    def multiply_add(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The same with a bias (N,), added as the product is written."""
        return self._multiply(x.to(self._dtype), bias)

    def clone(self) -> ByteWeight:
        """Return a copy at other addresses, for measuring with cold caches."""
        return ByteWeight(self._values.clone(), self._scale, self._dtype, self._is_invariant)

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
            parts.append(functional.linear(x, self._values[part].to(self._dtype)).mul_(self._scale[part]))
        product = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return product if bias is None else product.add_(bias)
