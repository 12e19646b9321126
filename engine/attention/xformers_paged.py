"""Paged attention on CUDA: our own kernels for single rows, a library's for chunks (chunk_attention.py).

Single rows (decodes) read the cache in place through a block table. Chunks attend over their own keys if they begin
their sequences; else over contexts, gathered group by group from the cache into packed tensors.

A cache in float8 (e4m3, without scales) is rounded when written and widened when read; chunks that begin their
sequences see their own keys unrounded.

Shapes: T tokens in the step, S single rows, H heads, K kv heads, D head size, P tokens per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape, StepLayout
from engine.attention.chunk_attention import WAYS, Attend, choose_chunk_way
from engine.kernels.cpu.transfer import upload
from engine.kernels.cuda import processor_count
from engine.kernels.cuda.paged_attention import attend_rows, parts_for
from engine.kernels.cuda.rotary import rotate_and_store

HEAD_MULTIPLE, HEAD_LIMIT = 8, 256
"""The limits of flash attention."""
MOST_GATHERED = 1 << 16
"""Context positions gathered at a time, unless one chunk has more: 256 MiB for 8 kv heads of 128 in bfloat16."""
FP8 = torch.float8_e4m3fn


class XformersAttention:
    """The cache and attention of all layers on one CUDA device. One extra block takes the writes of padding rows.

    `batch_invariant` fixes the number of parts that a context is cut into and makes every new token a single row.
    """

    def __init__(
        self,
        shapes: Sequence[AttentionShape],
        *,
        device: torch.device,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        batch_invariant: bool = False,
    ) -> None:
        """`shapes`: of all layers."""
        shape = shapes[0]
        if shape.head_size % HEAD_MULTIPLE or shape.head_size > HEAD_LIMIT:
            raise ModelLoadError(
                f"attention heads on CUDA must have a size that is a multiple of {HEAD_MULTIPLE} up to {HEAD_LIMIT}, "
                f"got {shape.head_size}"
            )
        self.shape = shape
        self.block_size = block_size
        self.batch_invariant = batch_invariant
        self.device = device
        self.padding_block = num_blocks
        # (L, slots, K, D)
        num_slots = (num_blocks + 1) * block_size
        self.shapes = shapes
        self.splits = batch_invariant or any(one.softcap for one in shapes)
        """True if every new token is a single row: no library's attention of chunks caps scores."""
        self.keys = torch.zeros(len(shapes), num_slots, shape.num_kv_heads, shape.head_size, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.layers = list(zip(self.keys.unbind(0), self.values.unbind(0), strict=True))
        self.chunk_way = choose_chunk_way(shapes, torch.bfloat16 if dtype is FP8 else dtype, device)
        self._num_slots = num_slots
        self._num_processors = processor_count(device)

    def summary(self) -> str:
        """Say what computes attention."""
        prompts = next(name for name, way in WAYS.items() if way is self.chunk_way)
        dtype = str(self.keys.dtype).removeprefix("torch.")
        return f"our kernels for next tokens, {prompts} for prompts, cache in {dtype}"

    def begin_step(self, layout: StepLayout) -> XformersStep:
        """Index the single rows of a step, and build the mask of its chunks."""
        query_lens, context_lens, block_ids = layout.query_lens, layout.context_lens, layout.block_ids
        if self.splits:
            query_lens, context_lens, block_ids = split_into_rows(query_lens, context_lens, block_ids)
        num_rows = next((i for i, length in enumerate(query_lens) if length > 1), len(query_lens))
        rows = chunks = None
        if num_rows:
            table = upload(
                block_table(context_lens[:num_rows], block_ids[:num_rows], self.block_size), torch.int32, self.device
            )
            rows = Rows(self, table, upload(context_lens[:num_rows], torch.int64, self.device))
        if num_rows < len(query_lens):
            chunks = Chunks(self, query_lens[num_rows:], context_lens[num_rows:], block_ids[num_rows:])
        return XformersStep(self, layout.slots, num_rows, rows, chunks)

    def fixed_rows(self, slots: torch.Tensor, contexts: torch.Tensor, table: torch.Tensor) -> XformersStep:
        """Return a step of single rows whose index tensors are read anew on each replay: (S,), (S,), (S, N)."""
        return XformersStep(self, slots, len(slots), Rows(self, table, contexts), None)

    def num_parts(self, num_rows: int) -> int:
        """Return into how many parts the kernel may cut a context."""
        return parts_for(
            1 if self.batch_invariant else num_rows, self.shape.num_kv_heads, self._num_processors, self._num_slots
        )


class XformersStep:
    """The attention of one step. The first `num_rows` tokens are single rows, the others belong to chunks."""

    def __init__(
        self, backend: XformersAttention, slots: torch.Tensor, num_rows: int, rows: Rows | None, chunks: Chunks | None
    ) -> None:
        self._backend = backend
        self._slots = slots
        self._num_rows = num_rows
        self._rows = rows
        self._chunks = chunks

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None = None
    ) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        keys, values = self._backend.layers[layer]
        for cache, new in ((keys, k), (values, v)):
            indexable(cache).index_copy_(0, self._slots, indexable(as_stored(new, cache.dtype)))
        return self._attend_stored(layer, q, k, v, sinks)

    def attend_heads(
        self, layer: int, heads: torch.Tensor, rotations: torch.Tensor, sinks: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rotate, store and attend. heads: (T, H + 2K, D) contiguous   rotations: (T, 1, D/2) complex64"""
        shape = self._backend.shape
        keys, values = self._backend.layers[layer]
        rotate_and_store(heads, rotations, self._slots, keys, values, shape.num_heads)
        num_rotated = shape.num_heads + shape.num_kv_heads
        q, k, v = heads[:, : shape.num_heads], heads[:, shape.num_heads : num_rotated], heads[:, num_rotated:]
        return self._attend_stored(layer, q, k, v, sinks)

    def _attend_stored(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """Attend rows and chunks. k, v: those of the step, which the cache already holds."""
        keys, values = self._backend.layers[layer]
        shape = self._backend.shapes[layer]
        if self._rows is None:
            assert self._chunks is not None
            return self._chunks.attend(shape, keys, values, q, k, v)
        if self._chunks is None:
            return self._rows.attend(shape, keys, values, q, sinks)
        num_rows = self._num_rows
        chunks = self._chunks.attend(shape, keys, values, q[num_rows:], k[num_rows:], v[num_rows:])
        return torch.cat((self._rows.attend(shape, keys, values, q[:num_rows], sinks), chunks))


class Rows:
    """Single rows, each with the blocks and the length of its context. table: (S, N) int32   contexts: (S,) int64"""

    def __init__(self, backend: XformersAttention, table: torch.Tensor, contexts: torch.Tensor) -> None:
        self._table = table
        self._contexts = contexts
        self._block_size = backend.block_size
        self._num_parts = backend.num_parts(len(contexts))

    def attend(
        self,
        shape: AttentionShape,
        keys: torch.Tensor,
        values: torch.Tensor,
        q: torch.Tensor,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """keys, values: (slots, K, D)  q: (S, H, D)  ->  (S, H, D)"""
        return attend_rows(
            q,
            keys,
            values,
            self._table,
            self._contexts,
            block_size=self._block_size,
            scale=shape.scale,
            num_parts=self._num_parts,
            window=shape.window,
            softcap=shape.softcap,
            sinks=sinks,
        )


class Gathered(NamedTuple):
    """Adjacent chunks whose contexts are gathered together: their tokens, the slots of the contexts, their lengths."""

    tokens: slice
    slots: torch.Tensor
    query_lens: list[int]
    context_lens: list[int]


class Chunks:
    """Sequences with several new tokens: each attends over itself if all begin, else group by group over the cache."""

    def __init__(
        self, backend: XformersAttention, query_lens: list[int], context_lens: list[int], block_ids: list[list[int]]
    ) -> None:
        self._backend = backend
        self._query_lens = query_lens
        self._gathered: list[Gathered] = []
        self._prepared: dict[tuple[AttentionShape, int], Attend] = {}
        if query_lens == context_lens:
            return
        first = 0
        for group in gathered_together(context_lens):
            contexts = context_lens[group]
            slots = upload(context_slots(contexts, block_ids[group], backend.block_size), torch.int64, backend.device)
            last = first + sum(query_lens[group])
            self._gathered.append(Gathered(slice(first, last), slots, query_lens[group], contexts))
            first = last

    def attend(
        self,
        shape: AttentionShape,
        keys: torch.Tensor,
        values: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> torch.Tensor:
        """keys, values: (slots, K, D)  q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        if not self._gathered:
            return self._way(shape, 0, self._query_lens, self._query_lens)(q, k, v)
        parts = []
        for number, group in enumerate(self._gathered):
            context = (
                indexable(cache).index_select(0, group.slots).view(cache.dtype).to(q.dtype) for cache in (keys, values)
            )
            attend = self._way(shape, number, group.query_lens, group.context_lens)
            parts.append(attend(q[group.tokens], *context))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _way(self, shape: AttentionShape, number: int, query_lens: list[int], context_lens: list[int]) -> Attend:
        """Prepare the attention of a group once for all layers of a shape."""
        if (shape, number) not in self._prepared:
            backend = self._backend
            self._prepared[shape, number] = backend.chunk_way(query_lens, context_lens, shape, backend.device)
        return self._prepared[shape, number]


def gathered_together(context_lens: list[int]) -> list[slice]:
    """Cut the chunks of a step into groups whose contexts have at most MOST_GATHERED positions, or one chunk."""
    groups, first, num_positions = [], 0, 0
    for place, length in enumerate(context_lens):
        if place > first and num_positions + length > MOST_GATHERED:
            groups.append(slice(first, place))
            first, num_positions = place, 0
        num_positions += length
    return [*groups, slice(first, len(context_lens))]


def as_stored(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert to the dtype of the cache. Eight-bit floats end at 448, where larger numbers saturate."""
    if dtype is FP8:
        limit = torch.finfo(FP8).max
        x = x.clamp(-limit, limit)
    return x.to(dtype)


def indexable(x: torch.Tensor) -> torch.Tensor:
    """View eight-bit floats as bytes: torch cannot always index them."""
    return x.view(torch.uint8) if x.dtype is FP8 else x


def block_table(context_lens: list[int], block_ids: list[list[int]], block_size: int) -> np.ndarray:
    """Return the blocks of each context, (S, N) int32, padded with block 0; the padding is never read."""
    counts = [-(-context // block_size) for context in context_lens]
    table = np.zeros((len(counts), max(counts)), np.int32)
    for row, (count, blocks) in enumerate(zip(counts, block_ids, strict=True)):
        table[row, :count] = blocks[:count]
    return table


def context_slots(context_lens: list[int], block_ids: list[list[int]], block_size: int) -> np.ndarray:
    """Return the slots of all context positions, one sequence after another, int64."""
    offsets = np.arange(block_size)
    parts = [
        (np.array(blocks[: -(-context // block_size)])[:, None] * block_size + offsets).flatten()[:context]
        for context, blocks in zip(context_lens, block_ids, strict=True)
    ]
    return np.concatenate(parts)


def split_into_rows(
    query_lens: list[int], context_lens: list[int], block_ids: list[list[int]]
) -> tuple[list[int], list[int], list[list[int]]]:
    """Turn every new token of a step into a sequence with one new token."""
    contexts: list[int] = []
    blocks: list[list[int]] = []
    for query_len, context_len, ids in zip(query_lens, context_lens, block_ids, strict=True):
        contexts += range(context_len - query_len + 1, context_len + 1)
        blocks += [ids] * query_len
    return [1] * len(contexts), contexts, blocks
