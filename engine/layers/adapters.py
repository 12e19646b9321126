"""Adapters beside the weights: low-rank changes of projections, for the rows of the requests that name them (LoRA,
https://arxiv.org/abs/2106.09685). A step may have rows of many adapters, and of none.

The loader makes `AdapterWeights`. `pack` lays them out for the device, `bind` gives them an index, and a step adds what
the indexes of its rows stand for. On a CPU that is done by kernels, which recorded programs may contain; elsewhere by
torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from engine.attention.torch_cpu import untouched_zeros
from engine.kernels.cpu import low_rank, operators
from engine.kernels.cpu.integer_vectors import LANES

MAX_ADAPTERS = 128
"""Adapters of one core, those included that are removed and still have requests. Index 0 changes nothing."""
MAX_RANK = 256


class ProjectionSize(NamedTuple):
    """A linear layer that adapters may change: its inputs, and the outputs of each tensor that is stacked in it."""

    num_inputs: int
    num_outputs: tuple[int, ...]


class LowRank(NamedTuple):
    """What an adapter adds to one range of outputs: x A^T B^T. down (A): (r, K), up (B): (N, r), scaled, float32."""

    down: torch.Tensor
    up: torch.Tensor


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """An adapter as loaded. `by_place`: the changes of a projection, one for each of its ranges of outputs or None."""

    by_place: Mapping[int, tuple[LowRank | None, ...]]
    rank: int
    """The largest."""
    modules: tuple[str, ...]
    """The names of the modules that it changes, without the layers."""


class AdapterRun(NamedTuple):
    """Adjacent rows of a step with one adapter, by its index."""

    adapter: int
    first: int
    num_rows: int


class StepAdapters(Protocol):
    """The adapters of the rows of one step."""

    def add(self, place: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return y with the changes of projection number `place`, which may be y itself. x: (T, K)  y: (T, N)"""
        ...


class CpuPacked:
    """An adapter for the kernels: the entries of tables by place, and the memory that they name.

    All matrices are in one piece of memory, in the order in which a step reads them.
    """

    def __init__(self, weights: AdapterWeights, dtype: torch.dtype) -> None:
        self._pieces: list[torch.Tensor] = []
        self._num_placed = 0
        entries = {place: self._entry(parts, dtype) for place, parts in weights.by_place.items()}
        # NOTE: in large pages, as a step reads a little of each adapter in each layer.
        self._memory = untouched_zeros(self._num_placed, dtype=dtype)
        torch.cat(self._pieces, out=self._memory)
        self._pieces.clear()
        self.num_bytes = self._memory.nbytes
        self.entries = {place: self._located(entry) for place, entry in entries.items()}

    def _entry(self, parts: Sequence[LowRank | None], dtype: torch.dtype) -> list[int]:
        """Lay out the matrices of one projection as low_rank.py describes them, with offsets for addresses."""
        down = torch.cat([part.down for part in parts if part is not None])
        entry, first = [self._place(down, LANES, dtype), -(-len(down) // LANES)], 0
        for part in parts:
            if part is None:
                entry += [0, 0, 0]
                continue
            rank = part.up.shape[1]
            entry += [self._place(part.up, low_rank.PANEL, dtype), first, rank]
            first += rank
        return entry + [0] * (low_rank.ENTRY - len(entry))

    def _place(self, matrix: torch.Tensor, height: int, dtype: torch.dtype) -> int:
        """Cut a matrix (N, K) into panels (N / height, K, height), the last filled up; return the offset in bytes."""
        panels = -(-len(matrix) // height)
        filled = torch.zeros(panels * height, matrix.shape[1], dtype=dtype)
        filled[: len(matrix)] = matrix
        offset = self._num_placed * dtype.itemsize
        self._pieces.append(filled.view(panels, height, -1).transpose(1, 2).flatten())
        self._num_placed += filled.numel()
        return offset

    def _located(self, entry: list[int]) -> list[int]:
        """Make addresses of the offsets of an entry."""
        start = self._memory.data_ptr()
        return [value + start if place in low_rank.ADDRESSES else value for place, value in enumerate(entry)]


class CpuAdapters:
    """The adapters of a model on a CPU, by their indexes. Their matrices are held in `dtype`, float32 or bfloat16.

    `pack` may be called from any thread, everything else from the one that computes.
    """

    def __init__(self, projections: Sequence[ProjectionSize], dtype: torch.dtype) -> None:
        self.projections = projections
        self.is_half = dtype is torch.bfloat16
        self.tables = [torch.zeros(MAX_ADAPTERS + 1, low_rank.ENTRY, dtype=torch.int64) for _ in projections]
        self._dtype = dtype
        self._bound: dict[int, CpuPacked] = {}

    def pack(self, weights: AdapterWeights) -> CpuPacked:
        return CpuPacked(weights, self._dtype)

    def bind(self, index: int, packed: CpuPacked) -> None:
        self._bound[index] = packed
        for place, entry in packed.entries.items():
            self.tables[place][index] = torch.tensor(entry)

    def free(self, index: int) -> None:
        """Make an index change nothing."""
        for place in self._bound[index].entries:
            self.tables[place][index] = 0
        del self._bound[index]

    def begin_step(self, runs: Sequence[AdapterRun], num_rows: int) -> CpuStepAdapters:
        """Return the adapters of a step."""
        step = self.fixed_rows(num_rows)
        step.fill(runs)
        return step

    def fixed_rows(self, num_rows: int) -> CpuStepAdapters:
        """Return the adapters of at most `num_rows` rows in fixed memory that is filled anew each step."""
        return CpuStepAdapters(self, num_rows)


class CpuStepAdapters:
    """The adapters of a step on a CPU, in memory that the kernels read."""

    def __init__(self, adapters: CpuAdapters, num_rows: int) -> None:
        self._adapters = adapters
        self._rows = operators.LowRankRows(
            torch.zeros(1 + low_rank.TILE * num_rows, dtype=torch.int64),
            torch.zeros(num_rows, dtype=torch.int64),
            torch.empty(num_rows, low_rank.PARTS * MAX_RANK),
        )
        self._writable = self._rows.tiles.numpy(), self._rows.members.numpy()

    def fill(self, runs: Sequence[AdapterRun]) -> None:
        """Store which rows have which adapters, those of one adapter together."""
        tiles, members = self._writable
        by_index: dict[int, list[int]] = {}
        for index, first, num_rows in runs:
            by_index.setdefault(index, []).extend(range(first, first + num_rows))
        place, made = 0, list[int]()
        for index, rows in by_index.items():
            members[place : place + len(rows)] = rows
            for start in range(0, len(rows), low_rank.TILE_ROWS):
                made += index, place + start, min(low_rank.TILE_ROWS, len(rows) - start)
            place += len(rows)
        tiles[0] = len(made) // low_rank.TILE
        tiles[1 : 1 + len(made)] = made

    def add(self, place: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """As `StepAdapters`; y becomes float32, as what comes next takes it in either dtype."""
        adapters = self._adapters
        sizes, table = adapters.projections[place].num_outputs, adapters.tables[place]
        return operators.add_low_rank(x.float(), y.float(), self._rows, table, sizes, adapters.is_half)


class TorchPacked:
    """An adapter as tensors of a device: the changes of each place."""

    def __init__(self, weights: AdapterWeights, device: torch.device, dtype: torch.dtype) -> None:
        self.by_place = {
            place: [
                None if part is None else LowRank(part.down.to(device, dtype), part.up.to(device, dtype))
                for part in parts
            ]
            for place, parts in weights.by_place.items()
        }
        found = [part for parts in self.by_place.values() for part in parts if part is not None]
        self.num_bytes = sum(part.down.nbytes + part.up.nbytes for part in found)


class TorchAdapters:
    """The adapters of a model on another device, with the methods of `CpuAdapters`."""

    def __init__(self, projections: Sequence[ProjectionSize], device: torch.device, dtype: torch.dtype) -> None:
        self.projections = projections
        self.bound: dict[int, TorchPacked] = {}
        self._device = device
        self._dtype = dtype

    def pack(self, weights: AdapterWeights) -> TorchPacked:
        return TorchPacked(weights, self._device, self._dtype)

    def bind(self, index: int, packed: TorchPacked) -> None:
        self.bound[index] = packed

    def free(self, index: int) -> None:
        del self.bound[index]

    def begin_step(self, runs: Sequence[AdapterRun], num_rows: int) -> TorchStepAdapters:
        """Return the adapters of a step."""
        by_index: dict[int, list[int]] = {}
        for index, first, count in runs:
            by_index.setdefault(index, []).extend(range(first, first + count))
        rows = {index: torch.tensor(numbers, device=self._device) for index, numbers in by_index.items()}
        return TorchStepAdapters(self, rows)


class TorchStepAdapters:
    """The adapters of a step by torch. rows: (n,) int64, by index."""

    def __init__(self, adapters: TorchAdapters, rows: Mapping[int, torch.Tensor]) -> None:
        self._adapters = adapters
        self._rows = rows

    def add(self, place: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """As `StepAdapters`, in place."""
        for index, rows in self._rows.items():
            first = 0
            sizes = self._adapters.projections[place].num_outputs
            for size, part in zip(sizes, self._adapters.bound[index].by_place.get(place, ()), strict=False):
                if part is not None:
                    added = x.index_select(0, rows).to(part.down.dtype) @ part.down.T @ part.up.T
                    y[:, first : first + size].index_add_(0, rows, added.to(y.dtype))
                first += size
        return y


Adapters = CpuAdapters | TorchAdapters


def make_adapters(
    projections: Sequence[ProjectionSize], device: torch.device, dtype: torch.dtype
) -> CpuAdapters | TorchAdapters:
    """Return the adapters of a model for a device, still without any. `dtype`: of the matrices, float32 or bfloat16."""
    return CpuAdapters(projections, dtype) if device.type == "cpu" else TorchAdapters(projections, device, dtype)
