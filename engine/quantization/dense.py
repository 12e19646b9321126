"""Plain weights in float32 or bfloat16, multiplied by torch."""

from __future__ import annotations

import torch
from torch.nn import functional


class DenseWeight:
    """A weight in floating point, (N, K), in the dtype of the product."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self._dtype = weight.dtype

    @property
    def num_bytes(self) -> int:
        return self.weight.nbytes

    @property
    def input_dtype(self) -> torch.dtype:
        return self._dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) in the weight's dtype."""
        return functional.linear(x.to(self._dtype), self.weight)

    def multiply_add(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Multiply, and add a bias (N,) in the weight's dtype; on CUDA in the same kernel."""
        return functional.linear(x.to(self._dtype), self.weight, bias)

    def clone(self) -> DenseWeight:
        """Return a copy at other addresses, for measuring with cold caches."""
        return DenseWeight(self.weight.clone())
