"""Token embedding: a table look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch.nn import functional

from engine.quantization.stored import StoredPart


class InputRows(NamedTuple):
    """Inputs of the rows of a step from row `first` on that no table has, such as those of an image: (N, E)."""

    first: int
    vectors: torch.Tensor
    places: torch.Tensor | None = None
    """Time, row and column by which they turn in place of their positions: (3, N) int64."""
    deep: torch.Tensor | None = None
    """What is added to the rows behind each of the first layers: (L, N, E)."""


@dataclass(frozen=True, slots=True)
class EncodedMedia:
    """What the encoder makes of an item: `vectors` (N, E), and what else the model's layers know of their tokens."""

    vectors: torch.Tensor
    places: torch.Tensor | None = None
    """Time, row and column of each vector within its span, from 0: (3, N) int64."""
    deep: torch.Tensor | None = None
    """What is added to the tokens' rows behind each of the first layers: (L, N, E)."""

    @property
    def num_bytes(self) -> int:
        return sum(part.nbytes for part in (self.vectors, self.places, self.deep) if part is not None)


class Embedding(Protocol):
    """A table look-up. token_ids: (T,) int64  ->  (T, E), a fresh tensor that the layers may change in place."""

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor: ...


class OpenEmbedding:
    """A table of numbers, (V, E), which a weight may share."""

    def __init__(self, table: torch.Tensor, dtype: torch.dtype) -> None:
        self.table = table
        self._dtype = dtype

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(token_ids, self.table).to(self._dtype)


class StoredEmbedding:
    """A table in the quantised blocks of its file; each step dequantises only its rows.

    Exact, in half the memory of bfloat16.

    Holds a copy, as a view would keep the whole file mapped.
    """

    def __init__(self, table: StoredPart, dtype: torch.dtype) -> None:
        """Raise ModelLoadError for NaN and infinite numbers."""
        table.check()
        self._table = table.with_data(table.data.clone())
        self._dtype = dtype

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        table = self._table
        return table.with_data(table.data.index_select(0, token_ids)).open().to(self._dtype)
