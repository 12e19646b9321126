"""Paged attention on CUDA with xformers: split-K paged kernels for single rows, variable-length flash attention for chunks.

Single rows (decodes) read the cache in place through a block table. The split-K kernel walks a page in tiles of `BLOCK_N` keys, 64 as
shipped, and asks for a page of whole tiles; a tile of one block makes pages of 16 possible. Causal chunks of more than 16 tokens are
not its business: those gather their context into one packed tensor and run a block-diagonal causal mask that is aligned at the end.
Source of the method: xformers.ops.fmha (BSD licence), read at 0.0.35. Numerics are checked on a GPU, masks also on a CPU.
"""

from __future__ import annotations

import logging
import warnings

import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape, StepLayout

MIN_TILE = 16
"""The smallest tile that a tensor-core product takes."""
HEAD_SIZES = (16, 32, 64, 128, 256, 512)


class XformersAttention:
    """Cache and attention of all layers on one CUDA device.

    `batch_invariant` fixes the number of splits to one and takes every new token as a row of its own.
    """

    def __init__(
        self,
        shape: AttentionShape,
        *,
        device: torch.device,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        batch_invariant: bool = False,
    ) -> None:
        if block_size % MIN_TILE:
            raise ModelLoadError(f"block_size must be a multiple of {MIN_TILE} on CUDA, got {block_size}")
        if shape.head_size not in HEAD_SIZES:
            raise ModelLoadError(f"attention heads on CUDA must have a size of {', '.join(map(str, HEAD_SIZES))}, got {shape.head_size}")
        self.shape = shape
        self.block_size = block_size
        self.batch_invariant = batch_invariant
        self.device = device
        # (L, B * P, K, D)
        self.keys = torch.zeros(num_layers, num_blocks * block_size, shape.num_kv_heads, shape.head_size, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.fmha = import_fmha()
        self.rows_op = paged_rows_op(block_size, single_split=batch_invariant)

    def begin_step(self, layout: StepLayout) -> XformersStep:
        """Build the masks of a step: one for its single rows, one for its chunks."""
        query_lens, context_lens, block_ids = layout.query_lens, layout.context_lens, layout.block_ids
        if self.batch_invariant:
            query_lens, context_lens, block_ids = split_into_rows(query_lens, context_lens, block_ids)
        num_rows = next((i for i, length in enumerate(query_lens) if length > 1), len(query_lens))
        rows = self._rows_mask(context_lens[:num_rows], block_ids[:num_rows]) if num_rows else None
        chunks = None
        if num_rows < len(query_lens):
            chunks = self._chunk_mask(query_lens[num_rows:], context_lens[num_rows:])
        slots = context_slots(context_lens[num_rows:], block_ids[num_rows:], self.block_size).to(self.device, non_blocking=True)
        return XformersStep(self, layout.slots, num_rows, rows, chunks, slots)

    def _rows_mask(self, context_lens: list[int], block_ids: list[list[int]]):
        table = block_table(context_lens, block_ids, self.block_size).to(self.device, non_blocking=True)
        mask = self.fmha.attn_bias.PagedBlockDiagonalPaddedKeysMask
        return mask.from_seqlens([1] * len(context_lens), context_lens, table, self.block_size, device=self.device)

    def _chunk_mask(self, query_lens: list[int], context_lens: list[int]):
        mask = self.fmha.attn_bias.BlockDiagonalCausalFromBottomRightMask
        return mask.from_seqlens(query_lens, context_lens, device=self.device)


class XformersStep:
    """One step: the first `num_rows` tokens are single rows, the others belong to chunks."""

    def __init__(self, backend: XformersAttention, slots: torch.Tensor, num_rows: int, rows, chunks, context_slots: torch.Tensor) -> None:
        self._backend = backend
        self._slots = slots
        self._num_rows = num_rows
        self._rows = rows
        self._chunks = chunks
        self._context_slots = context_slots

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        keys, values = self._backend.keys[layer], self._backend.values[layer]
        keys.index_copy_(0, self._slots, k.to(keys.dtype))
        values.index_copy_(0, self._slots, v.to(values.dtype))
        queries = q.to(keys.dtype)
        if self._chunks is None:
            return self._product(queries, keys, values, self._rows, self._backend.rows_op).to(q.dtype)
        out = torch.empty_like(queries)
        if self._num_rows:
            out[: self._num_rows] = self._product(queries[: self._num_rows], keys, values, self._rows, self._backend.rows_op)
        context_keys, context_values = keys.index_select(0, self._context_slots), values.index_select(0, self._context_slots)
        out[self._num_rows :] = self._product(queries[self._num_rows :], context_keys, context_values, self._chunks, None)
        return out.to(q.dtype)

    def _product(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask, op) -> torch.Tensor:
        """q: (T, H, D)  k, v: (C, K, D)  ->  (T, H, D). Query heads of a group share a key by a zero stride, never by a copy."""
        shape = self._backend.shape
        group = shape.num_heads // shape.num_kv_heads
        q = q.view(1, len(q), shape.num_kv_heads, group, shape.head_size)
        k = k[None, :, :, None].expand(-1, -1, -1, group, -1)
        v = v[None, :, :, None].expand(-1, -1, -1, group, -1)
        out = self._backend.fmha.memory_efficient_attention_forward(q, k, v, attn_bias=mask, scale=shape.scale, op=op)
        return out.view(-1, shape.num_heads, shape.head_size)


def import_fmha():
    """xformers.ops.fmha, without the warnings about its own compiled kernels: we use its Triton kernels and those of torch."""
    logger = logging.getLogger("xformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from xformers.ops import fmha
    finally:
        logger.setLevel(level)
    return fmha


def paged_rows_op(block_size: int, *, single_split: bool):
    """The split-K operator with a tile that divides the block. `single_split`: the order of additions ignores the batch."""
    splitk = import_fmha().triton_splitk.FwOp
    tile = splitk.BLOCK_N if block_size % splitk.BLOCK_N == 0 else MIN_TILE
    fields = {"BLOCK_N": tile, "SPLIT_K": 1 if single_split else None, "NAME": f"paged_splitk_{tile}"}
    return type("PagedRowsOp", (splitk,), fields)


def block_table(context_lens: list[int], block_ids: list[list[int]], block_size: int) -> torch.Tensor:
    """(S, N) int32: the blocks of each context, padded with the last one of its own."""
    counts = [-(-context // block_size) for context in context_lens]
    width = max(counts)
    return torch.tensor(
        [blocks[:count] + [blocks[count - 1]] * (width - count) for count, blocks in zip(counts, block_ids, strict=True)], dtype=torch.int32
    )


def context_slots(context_lens: list[int], block_ids: list[list[int]], block_size: int) -> torch.Tensor:
    """Slots of all positions of the contexts, one sequence after another, int64."""
    offsets = torch.arange(block_size)
    parts = [
        (torch.tensor(blocks[: -(-context // block_size)])[:, None] * block_size + offsets).flatten()[:context]
        for context, blocks in zip(context_lens, block_ids, strict=True)
    ]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)


def split_into_rows(
    query_lens: list[int], context_lens: list[int], block_ids: list[list[int]]
) -> tuple[list[int], list[int], list[list[int]]]:
    """The same step with every new token as a sequence of one."""
    contexts: list[int] = []
    blocks: list[list[int]] = []
    for query_len, context_len, ids in zip(query_lens, context_lens, block_ids, strict=True):
        contexts += range(context_len - query_len + 1, context_len + 1)
        blocks += [ids] * query_len
    return [1] * len(contexts), contexts, blocks
