"""Root-mean-square normalisation (https://arxiv.org/abs/1910.07467)."""

from __future__ import annotations

from math import sqrt

import torch
from torch.nn import functional


class RmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight.

    Torch has no single CPU kernel for it. There it is taken as x / sqrt(sum(x^2) + E eps) times a weight that holds sqrt(E): four
    small operations, about half the time of `functional.rms_norm`.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        size = weight.shape[0]
        self._eps = eps
        self._weight = weight
        self._scaled_weight = weight.float() * sqrt(size)
        self._offset = torch.tensor(sqrt(size * eps), device=weight.device)
        self._shape = (size,)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: (T, E)  ->  (T, E) in x's dtype."""
        if x.device.type != "cpu":
            return functional.rms_norm(x, self._shape, self._weight, self._eps)
        length = torch.linalg.vector_norm(x, 2, -1, True)
        return torch.div(x, length.hypot_(self._offset)).mul_(self._scaled_weight)
