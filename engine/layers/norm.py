"""Norms, fused with the addition to the residual stream before them: RMSNorm (https://arxiv.org/abs/1910.07467) and
LayerNorm (https://arxiv.org/abs/1607.06450).
"""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators


class Norm:
    """A norm over the residual stream. Without a bias an RMSNorm, with one a LayerNorm, without a weight none.

    weight, bias: (E,)   `scale` multiplies what is added to the stream, `stream_scale` the sum, on a CPU only.
    """

    def __init__(
        self,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        scale: float = 1.0,
        stream_scale: float = 1.0,
    ) -> None:
        self._weight = weight
        self._bias = bias
        self._eps = eps
        self._scale = scale
        self._constants = torch.tensor([eps, scale, stream_scale])

    def __call__(self, hidden: torch.Tensor, delta: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Add scale * delta to hidden in place, scale the sum, and normalise.

        hidden, delta: (T, E)  ->  (T, E) in `dtype`
        """
        if hidden.is_cpu:
            return operators.add_normalize(hidden, delta, self._weight, self._bias, self._constants, dtype)
        from engine.kernels.cuda.rows import add_normalize

        return add_normalize(hidden, delta, self._weight, self._bias, self._eps, self._scale, dtype)


class HeadsNorm:
    """RMSNorms of queries and keys before they are rotated, and of values; each weight normalises groups of its size.

    `num_values`: on a CPU only.
    """

    def __init__(
        self,
        query_weight: torch.Tensor,
        num_queries: int,
        key_weight: torch.Tensor,
        num_keys: int,
        eps: float,
        num_values: int = 0,
    ) -> None:
        self._queries = num_queries, query_weight
        self._keys = num_keys, key_weight
        self._values = num_values, torch.ones_like(key_weight)
        self._eps = eps
        self._eps_at = torch.tensor(eps)

    def __call__(self, heads: torch.Tensor) -> None:
        """Normalise in place. heads: (T, H, D): queries, then keys, then values; float32 on a CPU."""
        if heads.is_cpu:
            operators.normalize_heads(heads, (self._queries, self._keys, self._values), self._eps_at)
            return
        from engine.kernels.cuda.rows import normalize_heads

        normalize_heads(heads, self._queries, self._keys, self._eps)
