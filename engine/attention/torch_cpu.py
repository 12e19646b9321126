"""Paged attention on CPU: products read the cache where it lies, through `embedding_bag`, without gathering it first.

A weighted sum of table rows is what `embedding_bag` computes, and it skips through a table by index with prefetching kernels:

    values (B, K, P, D): one row per slot; the sum of a sequence's slots weighted by its probabilities is its output
    keys   (B, K, D, P): one row per block and dimension; the sum of a block's D rows weighted by q is its P scores

Every query row is computed on its own, in one order of additions, so a row's result does not depend on its neighbours.
Sequences with several new tokens go through `scaled_dot_product_attention`, one by one, except in batch-invariant mode.
A sequence that decodes alone is attended in a dense copy (`lone_decode.py`). Measurements: docs/decisions/0001-kv-cache-layout.md.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.lone_decode import LoneDecode, LoneStep

_MAX_GROUP_ROWS = 1 << 20
"""Key rows (blocks x heads x D) that one group of decodes may read: 4 MiB of expanded queries."""


class TorchCpuAttention:
    """Cache and attention of all layers on CPU. `dtype` float32 is exact; bfloat16 halves the memory and rounds the scores.

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
        self.layers = [LayerCache(keys, values) for keys, values in zip(self.keys.unbind(0), self.values.unbind(0), strict=True)]

        self._lone = None if batch_invariant else LoneDecode(shape, self.keys, self.values)

    def begin_step(self, layout: StepLayout) -> CpuStep | LoneStep:
        """Split the step into groups of single rows and into chunks, and index both; or continue a sequence that decodes alone."""
        if self._lone is not None and (lone := self._lone.step(layout)) is not None:
            return lone
        rows, chunks = [], []
        first = 0
        for query_len, context_len, block_ids in zip(layout.query_lens, layout.context_lens, layout.block_ids, strict=True):
            if query_len == 1 or self.batch_invariant:
                rows += [(first + i, context_len - query_len + i + 1, block_ids) for i in range(query_len)]
            else:
                chunks.append(ChunkPart(self.shape, slice(first, first + query_len), context_len, block_ids, self.block_size))
            first += query_len
        groups = [RowsPart(self.shape, group, self.block_size) for group in group_rows(rows, self.shape, self.block_size)]
        return CpuStep(self, layout.slots, [*groups, *chunks])


class LayerCache:
    """The cache of one layer in the shapes that reading and writing want; all are views of the same memory."""

    __slots__ = ("key_blocks", "key_rows", "value_blocks", "value_rows")

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.key_blocks = keys  # (B, K, D, P)
        self.value_blocks = values  # (B, K, P, D)
        self.key_rows = keys.view(-1, keys.shape[-1])  # (B * K * D, P)
        self.value_rows = values.view(-1, values.shape[-1])  # (B * K * P, D)


class CpuStep:
    """One step: where new keys and values go, and the parts that attend. A part covers some tokens; together they cover all."""

    def __init__(self, backend: TorchCpuAttention, slots: torch.Tensor, parts: list[RowsPart | ChunkPart]) -> None:
        self._layers = backend.layers
        self._dtype = backend.keys.dtype
        self._parts = parts
        self._blocks = slots // backend.block_size
        self._offsets = slots % backend.block_size

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        cache = self._layers[layer]
        cache.key_blocks[self._blocks, :, :, self._offsets] = k.to(self._dtype)
        cache.value_blocks[self._blocks, :, self._offsets] = v.to(self._dtype)
        if len(self._parts) == 1:
            return self._parts[0].attend(cache, q, k, v)
        out = torch.empty_like(q)
        for part in self._parts:
            out[part.tokens] = part.attend(cache, q[part.tokens], k[part.tokens], v[part.tokens])
        return out


Row = tuple[int, int, list[int]]
"""A query row: its token in the step, the positions that it sees, the blocks that hold them."""


def group_rows(rows: list[Row], shape: AttentionShape, block_size: int) -> list[list[Row]]:
    """Split rows into groups that are padded to one length each.

    Lengths that are alike stay in order; else rows are sorted, and each is at least half as long as the longest of its group.
    """
    if not rows:
        return []
    lengths = [context for _, context, _ in rows]
    longest = max(lengths)
    if longest * len(rows) > 2 * sum(lengths):
        rows = sorted(rows, key=lambda row: row[1], reverse=True)
    row_cost = shape.num_heads * shape.head_size
    groups: list[list[Row]] = [[]]
    top = 0
    for row in rows:
        top = max(top, row[1])
        is_full = (len(groups[-1]) + 1) * row_cost * (-(-top // block_size)) > _MAX_GROUP_ROWS
        if groups[-1] and (is_full or (longest * len(rows) > 2 * sum(lengths) and 2 * row[1] < top)):
            groups.append([])
            top = row[1]
        groups[-1].append(row)
    return groups


class RowsPart:
    """Query rows that are attended together, each over its own context, padded to the longest.

    Padding repeats positions of the row's own context with weight zero, so that nothing of another sequence is ever read.
    """

    def __init__(self, shape: AttentionShape, rows: list[Row], block_size: int) -> None:
        heads, kv_heads, size = shape.num_heads, shape.num_kv_heads, shape.head_size
        group = heads // kv_heads
        tokens = [token for token, _, _ in rows]
        is_run = tokens == list(range(tokens[0], tokens[0] + len(tokens)))
        self.tokens = slice(tokens[0], tokens[0] + len(tokens)) if is_run else torch.tensor(tokens)
        contexts = torch.tensor([context for _, context, _ in rows])
        num_blocks = (contexts + block_size - 1) // block_size
        width = int(num_blocks.max())
        table = torch.tensor([(blocks[:width] + [blocks[-1]] * (width - len(blocks))) for _, _, blocks in rows], dtype=torch.int32)
        table = table.gather(1, torch.minimum(torch.arange(width), num_blocks[:, None] - 1))
        positions = torch.arange(width * block_size)
        self._shape = (len(rows), heads, width, block_size)
        self._size = size
        # (S, K, N): rows of (block, kv head) pairs
        pairs = table[:, None, :] * kv_heads + torch.arange(kv_heads, dtype=torch.int32)[None, :, None]
        key_index = pairs[..., None] * size + torch.arange(size, dtype=torch.int32)
        self._key_index = key_index[:, :, None].expand(-1, -1, group, -1, -1).reshape(-1)
        self._key_offsets = torch.arange(0, self._key_index.numel() + 1, size, dtype=torch.int32)
        slots = (pairs[..., None] * block_size + torch.arange(block_size, dtype=torch.int32)).flatten(2)
        slots = slots.gather(2, torch.minimum(positions, contexts[:, None, None] - 1).expand(-1, kv_heads, -1))
        self._value_index = slots[:, :, None].expand(-1, -1, group, -1).reshape(-1)
        self._value_offsets = torch.arange(0, self._value_index.numel() + 1, len(positions), dtype=torch.int32)
        self._bias = torch.zeros(len(rows), 1, len(positions)).masked_fill_(positions >= contexts[:, None, None], float("-inf"))
        self._scale = torch.full((1, 1, width, 1), shape.scale)

    def attend(self, cache: LayerCache, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (S, H, D) -> (S, H, D). New keys and values are in the cache already; `k` and `v` are not needed."""
        rows, heads, width, block_size = self._shape
        dtype = cache.key_rows.dtype
        weights = torch.mul(q.view(rows, heads, 1, self._size), self._scale).to(dtype)  # (S, H, N, D)
        scores = _weighted_rows(cache.key_rows, self._key_index, self._key_offsets, weights)
        scores = scores.float().view(rows, heads, width * block_size).add_(self._bias)
        probabilities = torch.softmax(scores, -1).to(dtype)
        out = _weighted_rows(cache.value_rows, self._value_index, self._value_offsets, probabilities)
        return out.view(rows, heads, self._size).to(q.dtype)


def _weighted_rows(table: torch.Tensor, index: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sum `weights[i] * table[index[i]]` over each bag `offsets[b]..offsets[b + 1]`: (bags, columns of the table)."""
    return torch.embedding_bag(table, index, offsets, False, 0, False, weights.view(-1), True, None)[0]


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

    def attend(self, cache: LayerCache, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D), of this chunk only  ->  (T, H, D)"""
        keys, values = (k, v) if self._blocks is None else self._gather(cache, self._blocks)
        out = scaled_dot_product_attention(
            q.float().transpose(0, 1)[None],
            keys.float().transpose(0, 1)[None],
            values.float().transpose(0, 1)[None],
            attn_mask=self._bias,
            is_causal=self._bias is None,
            scale=self._shape.scale,
            enable_gqa=self._shape.num_heads != self._shape.num_kv_heads,
        )
        return out[0].transpose(0, 1).to(q.dtype)

    def _gather(self, cache: LayerCache, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the whole context, (context, K, D), from the cache."""
        kv_heads, size = self._shape.num_kv_heads, self._shape.head_size
        keys = cache.key_blocks.index_select(0, blocks).permute(0, 3, 1, 2)  # (N, P, K, D)
        values = cache.value_blocks.index_select(0, blocks).transpose(1, 2)
        keys, values = keys.reshape(-1, kv_heads, size), values.reshape(-1, kv_heads, size)
        return keys[: self._context_len], values[: self._context_len]
