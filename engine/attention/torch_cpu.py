"""Paged attention on CPU. Single rows (decodes) go through one compiled kernel that reads the cache where it lies; sequences with
several new tokens go one by one through torch's `scaled_dot_product_attention`, over what the cache holds of them and themselves.

Layout, of each layer: keys (B, K, D, P), values (B, K, P, D). Measurements: docs/decisions/0001-kv-cache-layout.md.
Every row is computed on its own, in one order of additions, so its result does not depend on its neighbours.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.backend import AttentionShape, StepLayout
from engine.kernels import operators
from engine.kernels.operators import RowAttention


class TorchCpuAttention:
    """Cache and attention of all layers on CPU. `dtype` float32 is exact; bfloat16 halves the memory and its traffic.

    `batch_invariant`: every new token is computed as a row of its own, whatever the shape of the step.
    """

    def __init__(
        self, shape: AttentionShape, *, num_layers: int, num_blocks: int, block_size: int, dtype: torch.dtype, batch_invariant: bool = False
    ) -> None:
        self.shape = shape
        self.block_size = block_size
        self.batch_invariant = batch_invariant
        heads, size = shape.num_kv_heads, shape.head_size
        self.keys = torch.zeros(num_layers, num_blocks, heads, size, block_size, dtype=dtype)
        self.values = torch.zeros(num_layers, num_blocks, heads, block_size, size, dtype=dtype)
        self.layers = list(zip(self.keys.unbind(0), self.values.unbind(0), strict=True))
        self.scale = torch.tensor(shape.scale)

    def begin_step(self, layout: StepLayout) -> CpuStep:
        """Split the step into single rows and chunks, and index both."""
        rows, chunks = [], []
        first = 0
        for query_len, context_len, block_ids in zip(layout.query_lens, layout.context_lens, layout.block_ids, strict=True):
            if query_len == 1 or self.batch_invariant:
                rows += [(first + i, context_len - query_len + i + 1, block_ids) for i in range(query_len)]
            else:
                chunks.append(ChunkPart(self.shape, slice(first, first + query_len), context_len, block_ids, self.block_size))
            first += query_len
        return CpuStep(self, row_attention(rows, layout.slots, self.block_size, self.scale), chunks)

    def fixed_rows(self, num_rows: int, table_width: int) -> FixedRows:
        """Single rows whose place is filled in step by step."""
        return FixedRows(self, num_rows, table_width)


Row = tuple[int, int, list[int]]
"""A query row: its token in the step, the positions that it sees, the blocks that hold them."""


def row_attention(rows: list[Row], slots: torch.Tensor, block_size: int, scale: torch.Tensor) -> RowAttention:
    """Index the rows of a step for the kernel. The table's width is that of the longest context."""
    contexts = [context for _, context, _ in rows]
    width = -(-max(contexts, default=0) // block_size)
    table = [blocks[:width] + [0] * (width - len(blocks)) for _, _, blocks in rows]
    tokens = torch.tensor([token for token, _, _ in rows], dtype=torch.int64)
    return RowAttention(
        slots, tokens, torch.tensor(contexts, dtype=torch.int64), torch.tensor(table, dtype=torch.int64).view(len(rows), width), scale
    )


class CpuStep:
    """One step: the rows, and the chunks. Together they cover all tokens."""

    def __init__(self, backend: TorchCpuAttention, rows: RowAttention, chunks: list[ChunkPart]) -> None:
        self._layers = backend.layers
        self._rows = rows
        self._chunks = chunks

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D), float32  ->  (T, H, D)"""
        keys, values = self._layers[layer]
        out = operators.empty(q.shape, torch.float32)
        self._rows.attend(keys, values, q, k, v, out)
        for part in self._chunks:
            out[part.tokens] = part.attend(keys, values, q[part.tokens], k[part.tokens], v[part.tokens])
        return out


class FixedRows(CpuStep):
    """A step of single rows in memory that stays: `fill`, then compute. `table_width`: blocks of the longest context."""

    def __init__(self, backend: TorchCpuAttention, num_rows: int, table_width: int) -> None:
        self._slots, self._contexts = (torch.ones(num_rows, dtype=torch.int64) for _ in range(2))
        self._table = torch.zeros(num_rows, table_width, dtype=torch.int64)
        self._table_rows = self._table.numpy()
        super().__init__(backend, RowAttention(self._slots, torch.arange(num_rows), self._contexts, self._table, backend.scale), [])

    def fill(self, layout: StepLayout) -> None:
        """Take the places of a step that has as many tokens, all of different sequences."""
        self._slots.copy_(layout.slots)
        self._contexts.copy_(torch.tensor(layout.context_lens))
        for row, block_ids in zip(self._table_rows, layout.block_ids, strict=True):
            row[: len(block_ids)] = block_ids


class ChunkPart:
    """Several new tokens of one sequence, over what the cache already holds of it and over themselves. Computed in float32."""

    def __init__(self, shape: AttentionShape, tokens: slice, context_len: int, block_ids: list[int], block_size: int) -> None:
        self.tokens = tokens
        self._shape = shape
        self._context_len = context_len
        num_new = tokens.stop - tokens.start
        num_before = context_len - num_new
        self._blocks: torch.Tensor | None = None
        self._bias: torch.Tensor | None = None
        if num_before:
            self._blocks = torch.tensor(block_ids[: -(-context_len // block_size)])
            self._bias = torch.full((num_new, context_len), float("-inf")).triu_(num_before + 1)

    def attend(
        self, key_blocks: torch.Tensor, value_blocks: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """key_blocks: (B, K, D, P)  value_blocks: (B, K, P, D)  q: (T, H, D)  k, v: (T, K, D), of this chunk only  ->  (T, H, D)"""
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

    def _gather(self, key_blocks: torch.Tensor, value_blocks: torch.Tensor, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the whole context, (context, K, D), from the cache."""
        kv_heads, size = self._shape.num_kv_heads, self._shape.head_size
        keys = key_blocks.index_select(0, blocks).permute(0, 3, 1, 2)  # (N, P, K, D)
        values = value_blocks.index_select(0, blocks).transpose(1, 2)
        keys, values = keys.reshape(-1, kv_heads, size), values.reshape(-1, kv_heads, size)
        return keys[: self._context_len], values[: self._context_len]
