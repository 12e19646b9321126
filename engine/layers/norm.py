"""Root-mean-square normalisation (https://arxiv.org/abs/1910.07467)."""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators


class RmsNorm:
    """A norm, x / sqrt(mean(x^2) + eps) * weight, fused with the addition to the residual stream before it."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._eps = eps
        self._weight = weight
        self._eps_at = torch.tensor(eps)

    def __call__(self, hidden: torch.Tensor, delta: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Add delta to hidden in place, and normalise. hidden, delta: (T, E)  ->  (T, E) in `dtype`."""
        if hidden.is_cpu:
            return operators.add_normalize(hidden, delta, self._weight, self._eps_at, dtype)
        from engine.kernels.cuda.rows import add_normalize

        return add_normalize(hidden, delta, self._weight, self._eps, dtype)
