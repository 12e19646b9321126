"""A weight matrix as its file stores it: rows of blocks, one part per source tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from math import isfinite

import torch

from engine.api.errors import ModelLoadError
from engine.quantization.gguf_blocks import (
    FLOAT_DTYPES,
    FOUR_BIT_TYPES,
    HALVES,
    PACKED_TYPES,
    FourBitGroups,
    PackedGroups,
    dequantize,
    four_bit_groups,
    packed_groups,
)
from engine.quantization.table_blocks import TABLE_TYPES, TableGroups, table_groups

OPEN_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Some rows in one storage type. data: (N, bytes per row) uint8.

    columns: where the data has each of the K inputs, (K,) int64; None if it has them in order.
    factor: what all numbers of the data are multiplied by. source: its file and tensor, for errors.
    """

    type: str
    data: torch.Tensor
    columns: torch.Tensor | None = None
    factor: float = 1.0
    source: str = "a weight"

    def with_data(self, data: torch.Tensor) -> StoredPart:
        return StoredPart(self.type, data, self.columns, self.factor, self.source)

    def open(self) -> torch.Tensor:
        """Dequantise: (N, K) float32."""
        values = dequantize(self.type, self.data)
        values = values if self.factor == 1 else values * self.factor
        return values if self.columns is None else values.index_select(1, self.columns)

    def load(self) -> torch.Tensor:
        """Do as `open`. Raises ModelLoadError for NaN and infinite numbers."""
        values = self.open()
        if not is_finite(values):
            raise damaged(self.source)
        return values

    def check(self) -> None:
        """Raise ModelLoadError for NaN and infinite numbers. Reads scales alone where blocks have them as halves."""
        if self.type not in HALVES:
            for rows in self.data.split(max(1, OPEN_ELEMENTS // self.data.shape[1])):
                self.with_data(rows).load()
            return
        block_bytes, places = HALVES[self.type]
        blocks = self.data.view(-1, block_bytes)
        if not all(is_finite(blocks[:, at : at + 2].contiguous().view(torch.float16)) for at in places):
            raise damaged(self.source)

    @property
    def packed_type(self) -> str:
        """The type if packed or table groups hold the numbers of the part, else ""."""
        is_plain = self.columns is None and self.factor == 1
        return self.type if is_plain and (self.type in PACKED_TYPES or self.type in TABLE_TYPES) else ""


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix of parts stacked by rows; `shape` is (N, K) of the whole."""

    parts: tuple[StoredPart, ...]
    shape: tuple[int, int]

    @classmethod
    def from_blocks(cls, type_name: str, data: torch.Tensor, shape: tuple[int, int]) -> StoredMatrix:
        return cls((StoredPart(type_name, data),), shape)

    @classmethod
    def from_float(cls, values: torch.Tensor) -> StoredMatrix:
        """Wrap plain numbers. values: (N, K) float32, float16 or bfloat16."""
        type_name = next(name for name, dtype in FLOAT_DTYPES.items() if dtype == values.dtype)
        return cls.from_blocks(type_name, values.contiguous().view(torch.uint8), (values.shape[0], values.shape[1]))

    @classmethod
    def outline(cls, type_name: str, shape: tuple[int, int], row_bytes: int) -> StoredMatrix:
        """Return a matrix without data, for what depends on its type and shape alone."""
        data = torch.empty(shape[0], row_bytes, dtype=torch.uint8, device="meta")
        return cls.from_blocks(type_name, data, shape)

    @classmethod
    def stack(cls, matrices: list[StoredMatrix]) -> StoredMatrix:
        """Stack matrices of equal width by rows."""
        parts = tuple(part for matrix in matrices for part in matrix.parts)
        return cls(parts, (sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]))

    def named(self, source: str) -> StoredMatrix:
        """Return the matrix with the name of its file and tensor, for errors."""
        return StoredMatrix(tuple(replace(part, source=source) for part in self.parts), self.shape)

    @property
    def num_bytes(self) -> int:
        return sum(part.data.nbytes for part in self.parts)

    @property
    def is_four_bit(self) -> bool:
        return all(part.packed_type in FOUR_BIT_TYPES for part in self.parts)

    @property
    def is_packed(self) -> bool:
        """True if packed groups hold the numbers of the file: parts of one such type."""
        return self._packed_type in PACKED_TYPES

    @property
    def has_table(self) -> bool:
        """True if table groups hold the numbers of the file: parts of one such type."""
        return self._packed_type in TABLE_TYPES

    @property
    def _packed_type(self) -> str:
        first, *others = {part.packed_type for part in self.parts}
        return "" if others else first

    def runs(self) -> list[StoredMatrix]:
        """Cut the matrix into runs of parts of one packed type, or of other types."""
        runs = [tuple(run) for _, run in groupby(self.parts, lambda part: part.packed_type)]
        return [StoredMatrix(run, (sum(len(part.data) for part in run), self.shape[1])) for run in runs]

    def rows(self, first: int, count: int) -> StoredMatrix:
        """Return some rows, as views."""
        parts = []
        for part in self.parts:
            if len(data := part.data[max(first, 0) : max(first + count, 0)]):
                parts.append(part.with_data(data))
            first -= len(part.data)
        return StoredMatrix(tuple(parts), (count, self.shape[1]))

    def take_rows(self, order: torch.Tensor) -> StoredMatrix:
        """Reorder the rows of a matrix of one part. order: (N,) int64."""
        (part,) = self.parts
        return StoredMatrix((part.with_data(part.data[order]),), self.shape)

    def pieces(self) -> Iterator[StoredPart]:
        """Yield the rows as stored, so few at a time that they stay in the caches dequantised."""
        num_rows = max(1, OPEN_ELEMENTS // self.shape[1])
        for part in self.parts:
            yield from map(part.with_data, part.data.split(num_rows))

    def open_rows(self) -> Iterator[torch.Tensor]:
        """Yield the rows dequantised, few at a time: (n, K) float32. Raises ModelLoadError as `StoredPart.load`."""
        return (piece.load() for piece in self.pieces())

    def to_dtype(self, dtype: torch.dtype) -> torch.Tensor:
        """Dequantise the whole matrix: (N, K) in `dtype`."""
        return torch.cat([rows.to(dtype) for rows in self.open_rows()])

    def to_four_bit_groups(self) -> FourBitGroups:
        """Split every part into four-bit groups; only when `is_four_bit`. Raises ModelLoadError as `check`."""
        groups = []
        for part in self.parts:
            groups.append(four_bit_groups(part.type, part.data))
            if not (is_finite(groups[-1].scale) and is_finite(groups[-1].minimum)):
                raise damaged(part.source)
        return FourBitGroups(
            *(torch.cat([getattr(group, name) for group in groups]) for name in ("q", "scale", "minimum"))
        )

    def to_packed_groups(self) -> PackedGroups:
        """Take apart a matrix that `is_packed`. Raises ModelLoadError as `check`, or for scales beyond a half."""
        groups = packed_groups(self._packed_type, self._data())
        if not all(is_finite(numbers) for numbers in groups.factors or groups.numbers):
            self.check()
            raise damaged(self.parts[0].source)
        return groups

    def to_table_groups(self) -> TableGroups:
        """Take apart a matrix that `has_table`. Raises ModelLoadError as `check`."""
        groups = table_groups(self._packed_type, self._data())
        if not is_finite(groups.scale * groups.table.abs().max()):
            self.check()
        return groups

    def _data(self) -> torch.Tensor:
        return torch.cat([part.data for part in self.parts]) if len(self.parts) > 1 else self.parts[0].data

    def check(self) -> None:
        """Raise ModelLoadError for NaN and infinite numbers."""
        for part in self.parts:
            part.check()


def damaged(source: str) -> ModelLoadError:
    return ModelLoadError(f"{source} holds numbers that are not finite (NaN or infinite): it is damaged")


def is_finite(numbers: torch.Tensor) -> bool:
    """Return True if all numbers are finite: those that are not make a sum that is not, which is quick to compute."""
    return isfinite(numbers.sum(dtype=torch.float32)) or bool(numbers.isfinite().all())
