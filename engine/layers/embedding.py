"""Token embedding: a table look-up."""

from __future__ import annotations

import torch
from torch.nn import functional


class Embedding:
    """table: (V, E)."""

    def __init__(self, table: torch.Tensor, dtype: torch.dtype) -> None:
        self._table = table
        self._dtype = dtype

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        """token_ids: (T,) int64  ->  (T, E), a fresh tensor that the layers may add to in place."""
        return functional.embedding(token_ids, self._table).to(self._dtype)
