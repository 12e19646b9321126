"""The feed-forward block: an activated projection, gated by a second one in most models
(https://arxiv.org/abs/2002.05202), and a projection back.
"""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators
from engine.layers.adapters import StepAdapters
from engine.layers.linear import Linear


class FeedForward:
    """A feed-forward block. `up` stacks the rows of the gate and of the second projection if `is_gated`."""

    def __init__(self, up: Linear, down: Linear, *, is_gelu: bool, is_gated: bool) -> None:
        self._up = up
        self._down = down
        self._is_gelu = is_gelu
        self._is_gated = is_gated

    def __call__(self, x: torch.Tensor, adapters: StepAdapters | None = None) -> torch.Tensor:
        """x: (T, E)  ->  (T, E)."""
        dtype = self._down.input_dtype(x.shape[0])
        active = activate(self._up(x, adapters), dtype, is_gelu=self._is_gelu, is_gated=self._is_gated)
        return self._down(active, adapters)

    def input_dtype(self, num_rows: int) -> torch.dtype:
        """Return the dtype in which the first projection takes so many rows."""
        return self._up.input_dtype(num_rows)


def activate(
    x: torch.Tensor,
    dtype: torch.dtype,
    *,
    is_gelu: bool = False,
    is_gated: bool = True,
    factors: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute act(gate) * up for x of (T, 2I), gates first, or act(x): (T, I) in `dtype`.

    factors: (T, I) float32, multiply act(x), on a CPU only.
    """
    if x.is_cpu:
        return operators.gate(x, dtype, is_gelu=is_gelu, is_gated=is_gated, factors=factors)
    from engine.kernels.cuda.rows import gate

    return gate(x, dtype, is_gelu=is_gelu, is_gated=is_gated)
