"""Paged attention on a CPU: new tokens are rows of one compiled kernel that reads the cache in place.

Where the kernel's vectors do not fit the head size, longer chunks go one by one through torch's
`scaled_dot_product_attention`. Every row is computed on its own, in one order of additions, so its result does not
depend on its neighbours.

Layout, of each layer: keys (B, K, D, P), values (B, K, P, D), heads filled up to what the vectors take. A block
is a part of the block of a cache tensor. Measurements: docs/decisions/0001-kv-cache-layout.md.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.backend import CPU, AttentionShape, StepLayout, kv_sizes
from engine.attention.both_ways import BothWays
from engine.attention.cache_groups import CacheGroups, LayerPlace, group_layers
from engine.kernels.cpu import operators
from engine.kernels.cpu.operators import RowAttention, tile_rows

FEW_ROWS = 32
"""Up to so many new tokens of a sequence are cheaper as rows than as a chunk, even without the kernel's vectors."""


class TorchCpuAttention:
    """The cache and attention of all layers on a CPU. `dtype` bfloat16 halves the memory and its traffic.

    `batch_invariant`: compute every new token as a row, as always where the kernel's vectors fit heads and blocks
    (`has_vectors`).
    """

    def __init__(
        self,
        shapes: Sequence[AttentionShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        groups: CacheGroups | None = None,
        batch_invariant: bool = False,
    ) -> None:
        """`shapes`: of all layers. `groups`: of the layers, all in one unless given."""
        self.shape = shapes[0]
        sizes = kv_sizes(shapes, block_size, CPU)
        groups = groups or group_layers(
            [0] * len(shapes), sizes, block_size=block_size, sources=[one.source for one in shapes]
        )
        self.groups = groups
        self.block_size = block_size
        self.batch_invariant = batch_invariant
        part_size = max(sizes) * block_size
        self.keys, self.values = (
            untouched_zeros(groups.num_tensors, num_blocks, part_size, dtype=dtype) for _ in range(2)
        )
        constants = {(one.scale, one.softcap): torch.tensor([one.scale, one.softcap]) for one in shapes}
        self.layers = [
            LayerCache(
                place.group,
                *self._blocks_of(place, one),
                constants[one.scale, one.softcap],
                one,
            )
            for place, one in zip(groups.places, shapes, strict=True)
        ]
        head_sizes = {operators.cached_size(one.head_size, block_size) for one in shapes}
        self.has_vectors = all(operators.attention_has_vectors(size, block_size) for size in head_sizes)
        self._is_flash = all(operators.attention_is_flash(size, block_size, dtype) for size in head_sizes)
        is_plain = not any(one.window or one.softcap or one.has_sinks for one in shapes) and len(set(shapes)) == 1
        self._heads = max(((one.num_heads, one.num_kv_heads) for one in shapes), key=lambda heads: heads[0] / heads[1])
        """Query and kv heads of the layer with the largest groups."""
        self.takes_rows = batch_invariant or self.has_vectors or groups.count > 1 or not is_plain
        """True if every new token is a row, however many a sequence has."""

    def _blocks_of(self, place: LayerPlace, shape: AttentionShape) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the keys (B, K, D, P) and values (B, K, P, D) of a layer, views of its part of each block."""
        heads, size = shape.num_kv_heads, operators.cached_size(shape.head_size, self.block_size)
        count = heads * size * self.block_size
        part = slice(place.part * count, (place.part + 1) * count)
        keys, values = (cache[place.tensor, :, part] for cache in (self.keys, self.values))
        return keys.unflatten(1, (heads, size, self.block_size)), values.unflatten(1, (heads, self.block_size, size))

    def summary(self) -> str:
        """Say what computes attention."""
        if self._is_flash:
            form = "our flash attention"
        else:
            form = "our kernel" if self.has_vectors else "our kernel without its vectors"
        long_chunks = "" if self.takes_rows else f", torch for more than {FEW_ROWS} tokens of a prompt"
        return f"{form}{long_chunks}, cache in {str(self.keys.dtype).removeprefix('torch.')}"

    def begin_step(self, layout: StepLayout) -> CpuStep:
        """Split the step into rows and long chunks, and index both."""
        runs, chunks = [], []
        for run in runs_of(layout):
            if run.num_rows <= FEW_ROWS or self.takes_rows:
                runs.append(run)
            else:
                chunks.append(ChunkPart(self.shape, run, self.block_size))
        width = -(-max((run.context_len for run in runs), default=0) // self.block_size)
        num_tiles = sum(-(-run.num_rows // self.tile_rows(run.num_rows)) for run in runs)
        most_rows = max((self.tile_rows(run.num_rows) for run in runs), default=1)
        table = torch.zeros(num_tiles, self.groups.count, width, dtype=torch.int64)
        rows = RowIndex(self, sum(run.num_rows for run in runs), most_rows, table)
        rows.fill(runs)
        both_ways = BothWays(layout.whole_spans, self.groups, CPU) if layout.whole_spans else None
        return CpuStep(self, rows.attentions(layout.slots), chunks, both_ways)

    def tile_rows(self, num_rows: int) -> int:
        """Return how many of a sequence's `num_rows` new rows are computed together."""
        return tile_rows(*self._heads, num_rows, self._is_flash)

    def fixed_rows(self, num_rows: int, table_width: int) -> FixedRows:
        """Return rows in fixed memory that is filled anew each step. `table_width`: blocks of the longest context."""
        return FixedRows(self, num_rows, table_width)


class LayerCache(NamedTuple):
    """The cache of a layer, its attention, and of this scale and softcap in float32."""

    group: int
    keys: torch.Tensor
    values: torch.Tensor
    constants: torch.Tensor
    shape: AttentionShape

    def gather(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of positions, (N, K, D)."""
        block_size, size = self.keys.shape[3], self.shape.head_size
        blocks, places = slots // block_size, slots % block_size
        return self.keys[blocks, :, :size, places], self.values[blocks, :, places, :size]


class Run(NamedTuple):
    """Adjacent rows of one sequence: their first token in the step, the context of the last one and its block table."""

    first: int
    num_rows: int
    context_len: int
    block_ids: list[int]


def runs_of(layout: StepLayout) -> list[Run]:
    """Return the tokens of each sequence of a step as a run."""
    firsts = accumulate(layout.query_lens, initial=0)
    return [Run(*run) for run in zip(firsts, layout.query_lens, layout.context_lens, layout.block_ids, strict=False)]


class RowIndex:
    """The positions of a step's rows, in memory that the kernel reads. Cache groups differ by their block tables.

    `most_rows`: the most rows of a tile; `table`: zeros, (tiles of a step, G, blocks of the longest context) int64.
    """

    def __init__(self, backend: TorchCpuAttention, num_rows: int, most_rows: int, table: torch.Tensor) -> None:
        self._backend = backend
        self._most_rows = most_rows
        self._tokens, self._contexts = torch.zeros(num_rows, dtype=torch.int64), torch.ones(num_rows, dtype=torch.int64)
        self._tiles = torch.zeros(len(table) + 2, dtype=torch.int64)
        self._table = table
        self._writable = self._tokens.numpy(), self._contexts.numpy(), self._tiles.numpy(), self._table.numpy()

    def attentions(self, slots: torch.Tensor) -> list[RowAttention]:
        """Return the kernel of each cache group over these rows, as `fill` last left them.

        slots: (G, T) int64, of all tokens of the step
        """
        return [
            RowAttention(own, self._tokens, self._contexts, self._tiles, table, self._most_rows)
            for own, table in zip(slots.unbind(0), self._table.unbind(1), strict=True)
        ]

    def fill(self, runs: list[Run]) -> None:
        """Store the rows of a step, cut into tiles."""
        tokens, contexts, tiles, table = self._writable
        num_groups = self._backend.groups.count
        row = tile = 0
        for first, num_rows, context_len, block_ids in runs:
            num_spans = -(-context_len // self._backend.block_size)
            blocks = np.array(block_ids[: num_spans * num_groups]).reshape(num_spans, num_groups).T
            height = min(self._backend.tile_rows(num_rows), self._most_rows)
            if num_rows == 1:
                tokens[row], contexts[row] = first, context_len
            else:
                tokens[row : row + num_rows] = range(first, first + num_rows)
                contexts[row : row + num_rows] = range(context_len - num_rows + 1, context_len + 1)
            for start in range(0, num_rows, height):
                table[tile, :, :num_spans] = blocks
                tile += 1
                tiles[tile] = row + start
            row += num_rows
        tiles[0], tiles[tile + 1] = tile, row


class CpuStep:
    """The attention of one step. Rows and chunks together cover all tokens."""

    def __init__(
        self,
        backend: TorchCpuAttention,
        rows: list[RowAttention],
        chunks: list[ChunkPart],
        both_ways: BothWays | None = None,
    ) -> None:
        """`rows`: by cache group. `chunks`: only of a backend with one group."""
        self._layers = backend.layers
        self._rows = rows
        self._chunks = chunks
        self._both_ways = both_ways

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D), float32, or None  ->  (T, H, D)"""
        group, keys, values, constants, shape = own = self._layers[layer]
        out = operators.empty(q.shape, torch.float32)
        self._rows[group].attend(keys, values, q, k, v, out, constants, shape.window, sinks)
        for part in self._chunks:
            assert k is not None
            assert v is not None
            out[part.tokens] = part.attend(keys, values, q[part.tokens], k[part.tokens], v[part.tokens])
        if self._both_ways is not None:
            self._both_ways.attend(group, shape, own.gather, q, out)
        return out


class FixedRows(CpuStep):
    """A step of at most `num_rows` rows in fixed memory: `fill`, then compute."""

    def __init__(self, backend: TorchCpuAttention, num_rows: int, table_width: int) -> None:
        self._slots = torch.zeros(backend.groups.count, num_rows, dtype=torch.int64)
        # NOTE: a table of the longest contexts has hundreds of megabytes, of which steps write what contexts have.
        table = untouched_zeros(num_rows, backend.groups.count, table_width, dtype=torch.int64)
        self._index = RowIndex(backend, num_rows, backend.tile_rows(num_rows), table)
        super().__init__(backend, self._index.attentions(self._slots), [])

    def fill(self, layout: StepLayout) -> None:
        """Store the positions of a step of at most `num_rows` tokens."""
        self._slots[:, : layout.slots.shape[1]].copy_(layout.slots)
        self._index.fill(runs_of(layout))


class ChunkPart:
    """Several new tokens of one sequence that attend over its cached context and themselves, in float32."""

    def __init__(self, shape: AttentionShape, run: Run, block_size: int) -> None:
        first, num_new, context_len, block_ids = run
        self.tokens = slice(first, first + num_new)
        self._shape = shape
        self._context_len = context_len
        num_before = context_len - num_new
        self._blocks: torch.Tensor | None = None
        self._bias: torch.Tensor | None = None
        if num_before:
            self._blocks = torch.tensor(block_ids[: -(-context_len // block_size)])
            self._bias = torch.full((num_new, context_len), float("-inf")).triu_(num_before + 1)

    def attend(
        self, key_blocks: torch.Tensor, value_blocks: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """(B, K, D, P), (B, K, P, D)  q: (T, H, D)  k, v: (T, K, D), of this chunk only  ->  (T, H, D)"""
        keys, values = (k, v) if self._blocks is None else self._gather(key_blocks, value_blocks, self._blocks)
        out = scaled_dot_product_attention(
            q.float().transpose(0, 1)[None],
            keys.float().transpose(0, 1)[None],
            values.float().transpose(0, 1)[None],
            attn_mask=self._bias,
            is_causal=self._bias is None,
            scale=self._shape.scale,
            enable_gqa=self._shape.num_heads != self._shape.num_kv_heads,
        )
        return out[0].transpose(0, 1)

    def _gather(
        self, key_blocks: torch.Tensor, value_blocks: torch.Tensor, blocks: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather keys and values of the whole context, (context, K, D), from the cache."""
        kv_heads, size = self._shape.num_kv_heads, self._shape.head_size
        keys = key_blocks.index_select(0, blocks).permute(0, 3, 1, 2)  # (N, P, K, D)
        values = value_blocks.index_select(0, blocks).transpose(1, 2)
        keys, values = keys.reshape(-1, kv_heads, size), values.reshape(-1, kv_heads, size)
        return keys[: self._context_len], values[: self._context_len]


def untouched_zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros whose pages the system provides at their first write, so that a cache costs only what it holds.

    Uses huge pages where the system has them, as a step reads all over the cache.
    """
    size = math.prod(shape) * dtype.itemsize
    if sys.platform == "win32" or not size:
        return torch.zeros(*shape, dtype=dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # this Linux kernel was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
