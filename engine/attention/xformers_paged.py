"""Paged attention on CUDA: our own kernels for single rows, a library's for chunks (chunk_attention.py).

Single rows (decodes) read the cache in place through a block table. Chunks attend over their own keys if they begin
their sequences; else over contexts, as far as windows reach, gathered part by part from the cache into packed tensors.

A cache in float8 (e4m3, without scales) is rounded when written and widened when read; chunks that begin their
sequences see their own keys unrounded.

Shapes: T tokens in the step, S single rows, G cache groups, H heads, K kv heads, D head size, P tokens per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape, StepLayout, kv_sizes
from engine.attention.both_ways import BothWays
from engine.attention.cache_groups import CacheGroups, group_layers
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
        groups: CacheGroups | None = None,
        batch_invariant: bool = False,
    ) -> None:
        """`shapes`: of all layers. `groups`: of the layers, all in one unless given."""
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
        self.groups = groups = groups or group_layers(
            [0] * len(shapes), kv_sizes(shapes, block_size, device), block_size=block_size
        )
        num_slots = (num_blocks + 1) * block_size
        self.shapes = shapes
        self.splits = batch_invariant or any(one.softcap or one.has_sinks for one in shapes)
        """True if every new token is a single row: no library's attention of chunks caps scores or has sinks."""
        # (cache tensors, slots, K, D)
        size = (groups.num_tensors, num_slots, shape.num_kv_heads, shape.head_size)
        self.keys, self.values = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self.layers = [
            LayerCache(place.group, self.keys[place.tensor], self.values[place.tensor], shape)
            for place, shape in zip(groups.places, shapes, strict=True)
        ]
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
            tables = block_tables(context_lens[:num_rows], block_ids[:num_rows], self.groups)
            contexts = upload(context_lens[:num_rows], torch.int64, self.device)
            rows = Rows(self, upload(tables, torch.int32, self.device), contexts)
        if num_rows < len(query_lens):
            chunks = Chunks(self, query_lens[num_rows:], context_lens[num_rows:], block_ids[num_rows:])
        both_ways = BothWays(layout.whole_spans, self.groups, self.device) if layout.whole_spans else None
        return XformersStep(self, layout.slots, num_rows, rows, chunks, both_ways)

    def fixed_rows(self, slots: torch.Tensor, contexts: torch.Tensor, tables: torch.Tensor) -> XformersStep:
        """Return a step of single rows whose index tensors are read anew on each replay: (G, S), (S,), (G, S, N)."""
        return XformersStep(self, slots, len(contexts), Rows(self, tables, contexts), None)

    def num_parts(self, num_rows: int) -> int:
        """Return into how many parts the kernel may cut a context."""
        return parts_for(
            1 if self.batch_invariant else num_rows, self.shape.num_kv_heads, self._num_processors, self._num_slots
        )


class LayerCache(NamedTuple):
    """The cache of a layer: its group, its tensors (slots, K, D), and its attention."""

    group: int
    keys: torch.Tensor
    values: torch.Tensor
    shape: AttentionShape

    def gather(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of positions, (N, K, D)."""
        keys, values = (indexable(kept).index_select(0, slots).view(kept.dtype) for kept in (self.keys, self.values))
        return keys, values


class XformersStep:
    """The attention of one step. The first `num_rows` tokens are single rows, the others belong to chunks."""

    def __init__(
        self,
        backend: XformersAttention,
        slots: torch.Tensor,
        num_rows: int,
        rows: Rows | None,
        chunks: Chunks | None,
        both_ways: BothWays | None = None,
    ) -> None:
        self._backend = backend
        self._slots = slots
        self._num_rows = num_rows
        self._rows = rows
        self._chunks = chunks
        self._both_ways = both_ways

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None = None
    ) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        group, keys, values, _ = self._backend.layers[layer]
        for cache, new in ((keys, k), (values, v)):
            indexable(cache).index_copy_(0, self._slots[group], indexable(as_stored(new, cache.dtype)))
        return self._attend_stored(layer, q, k, v, sinks)

    def attend_heads(
        self, layer: int, heads: torch.Tensor, rotations: torch.Tensor, sinks: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rotate, store and attend. heads: (T, H + 2K, D) contiguous   rotations: (T, 1, D/2) complex64"""
        group, keys, values, shape = self._backend.layers[layer]
        rotate_and_store(heads, rotations, self._slots[group], keys, values, shape.num_heads)
        num_rotated = shape.num_heads + shape.num_kv_heads
        q, k, v = heads[:, : shape.num_heads], heads[:, shape.num_heads : num_rotated], heads[:, num_rotated:]
        return self._attend_stored(layer, q, k, v, sinks)

    def _attend_stored(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """Attend. k, v: those of the step, which the cache already holds."""
        cache = self._backend.layers[layer]
        out = self._attend_before(cache, q, k, v, sinks)
        if self._both_ways is not None:
            self._both_ways.attend(cache.group, cache.shape, cache.gather, q, out)
        return out

    def _attend_before(
        self, cache: LayerCache, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """Attend rows and chunks, each token over itself and those before it."""
        if self._rows is None:
            assert self._chunks is not None
            return self._chunks.attend(cache, q, k, v)
        if self._chunks is None:
            return self._rows.attend(cache, q, sinks)
        num_rows = self._num_rows
        chunks = self._chunks.attend(cache, q[num_rows:], k[num_rows:], v[num_rows:])
        return torch.cat((self._rows.attend(cache, q[:num_rows], sinks), chunks))


class Rows:
    """Single rows, each with the blocks and the length of its context.

    tables: (G, S, N) int32   contexts: (S,) int64
    """

    def __init__(self, backend: XformersAttention, tables: torch.Tensor, contexts: torch.Tensor) -> None:
        self._tables = tables
        self._contexts = contexts
        self._block_size = backend.block_size
        self._num_parts = backend.num_parts(len(contexts))

    def attend(self, cache: LayerCache, q: torch.Tensor, sinks: torch.Tensor | None = None) -> torch.Tensor:
        """q: (S, H, D)  ->  (S, H, D)"""
        group, keys, values, shape = cache
        return attend_rows(
            q,
            keys,
            values,
            self._tables[group],
            self._contexts,
            block_size=self._block_size,
            scale=shape.scale,
            num_parts=self._num_parts,
            window=shape.window,
            softcap=shape.softcap,
            sinks=sinks,
        )


class Gathered(NamedTuple):
    """Adjacent chunks whose contexts are gathered together, from where the first token sees them: their tokens, the
    slots of the contexts, their lengths.
    """

    tokens: slice
    slots: torch.Tensor
    query_lens: list[int]
    context_lens: list[int]


class Chunks:
    """Sequences with several new tokens: each attends over itself if all begin, else part by part over the cache."""

    def __init__(
        self, backend: XformersAttention, query_lens: list[int], context_lens: list[int], block_ids: list[list[int]]
    ) -> None:
        self._backend = backend
        self._query_lens = query_lens
        self._gathered: list[list[Gathered]] = []
        """By cache group; empty if every chunk begins its sequence."""
        self._prepared: dict[tuple[AttentionShape, int], Attend] = {}
        if query_lens != context_lens:
            tables = [np.array(blocks).reshape(-1, backend.groups.count) for blocks in block_ids]
            self._gathered = [
                self._gather(context_lens, [table[:, group] for table in tables], window)
                for group, window in enumerate(backend.groups.windows)
            ]

    def _gather(self, context_lens: list[int], tables: list[np.ndarray], window: int) -> list[Gathered]:
        """Return which slots of a cache group are read. tables: (N,), the blocks of the group, of each chunk."""
        block_size, device = self._backend.block_size, self._backend.device
        ends = zip(context_lens, self._query_lens, strict=True)
        firsts = [max(0, end - count - window + 1) if window else 0 for end, count in ends]
        lengths = [end - first for end, first in zip(context_lens, firsts, strict=True)]
        gathered, first = [], 0
        for part in gathered_together(lengths):
            slots = context_slots(firsts[part], context_lens[part], tables[part], block_size)
            last = first + sum(self._query_lens[part])
            slots_there = upload(slots, torch.int64, device)
            gathered.append(Gathered(slice(first, last), slots_there, self._query_lens[part], lengths[part]))
            first = last
        return gathered

    def attend(self, cache: LayerCache, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D)"""
        group, keys, values, shape = cache
        if not self._gathered:
            return self._way(shape, 0, self._query_lens, self._query_lens)(q, k, v)
        parts = []
        for number, part in enumerate(self._gathered[group]):
            context = (
                indexable(kept).index_select(0, part.slots).view(kept.dtype).to(q.dtype) for kept in (keys, values)
            )
            attend = self._way(shape, number, part.query_lens, part.context_lens)
            parts.append(attend(q[part.tokens], *context))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _way(self, shape: AttentionShape, number: int, query_lens: list[int], context_lens: list[int]) -> Attend:
        """Prepare the attention of a part once for all layers of a shape."""
        if (shape, number) not in self._prepared:
            backend = self._backend
            self._prepared[shape, number] = backend.chunk_way(query_lens, context_lens, shape, backend.device)
        return self._prepared[shape, number]


def gathered_together(context_lens: list[int]) -> list[slice]:
    """Cut the chunks of a step into parts whose contexts have at most MOST_GATHERED positions, or one chunk."""
    parts, first, num_positions = [], 0, 0
    for place, length in enumerate(context_lens):
        if place > first and num_positions + length > MOST_GATHERED:
            parts.append(slice(first, place))
            first, num_positions = place, 0
        num_positions += length
    return [*parts, slice(first, len(context_lens))]


def as_stored(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert to the dtype of the cache. Eight-bit floats end at 448, where larger numbers saturate."""
    if dtype is FP8:
        limit = torch.finfo(FP8).max
        x = x.clamp(-limit, limit)
    return x.to(dtype)


def indexable(x: torch.Tensor) -> torch.Tensor:
    """View eight-bit floats as bytes: torch cannot always index them."""
    return x.view(torch.uint8) if x.dtype is FP8 else x


def block_tables(context_lens: list[int], block_ids: list[list[int]], groups: CacheGroups) -> np.ndarray:
    """Return the blocks of each context, (G, S, N) int32, padded with block 0; the padding is never read."""
    counts = [groups.num_spans(context) for context in context_lens]
    tables = np.zeros((groups.count, len(counts), max(counts)), np.int32)
    for row, (count, blocks) in enumerate(zip(counts, block_ids, strict=True)):
        tables[:, row, :count] = np.array(blocks[: count * groups.count]).reshape(count, groups.count).T
    return tables


def context_slots(firsts: list[int], ends: list[int], tables: list[np.ndarray], block_size: int) -> np.ndarray:
    """Return the slots of the positions that contexts show, one sequence after another, int64."""
    positions = [np.arange(first, end) for first, end in zip(firsts, ends, strict=True)]
    shown = zip(tables, positions, strict=True)
    return np.concatenate([table[seen // block_size] * block_size + seen % block_size for table, seen in shown])


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
