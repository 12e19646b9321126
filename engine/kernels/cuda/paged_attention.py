"""Attention of single rows over the paged cache. Each row's context is cut into parts, computed in parallel and joined.

The device decides how many parts a row has by the length of its context: at most `num_parts`, none shorter than
LEAST_PART positions. So one captured launch serves contexts of any length, and padding rows cost almost nothing. For a
fixed `num_parts`, a row's result depends only on the row. Method: flash decoding
(https://pytorch.org/blog/flash-decoding/) over paged keys (https://arxiv.org/abs/2309.06180).

Shapes: S rows, H heads, K kv heads, G = H / K, D head size, N blocks in a table, P positions in a block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE, TILE_BYTES = 64, 16 << 10
"""Positions that a program reads at a time, fewer if their keys would take more than TILE_BYTES of fast memory."""
LEAST_PART = 128
MAX_PARTS = 32
LEAST_ROWS = 16
"""The smallest side of a matrix product; smaller groups of heads and smaller heads are padded to it."""


@triton.jit
def _part_length(context, PARTS: tl.constexpr, LEAST: tl.constexpr, TILE: tl.constexpr):
    return tl.maximum(tl.cdiv(tl.cdiv(context, PARTS), TILE) * TILE, LEAST)


@triton.jit
def _first_position(context, window):
    return tl.where(window > 0, tl.maximum(context - window, 0), 0)


@triton.jit(do_not_specialize=["table_row_stride", "table_block_stride"])
def _attend_part(
    queries,
    keys,
    values,
    table,
    contexts,
    sums,
    maxima,
    totals,
    out,
    sinks,
    scale,
    softcap,
    window,
    kv_heads,
    query_stride,
    table_row_stride,
    table_block_stride,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    PARTS: tl.constexpr,
    LEAST: tl.constexpr,
    IS_EXACT: tl.constexpr,
    IS_CAPPED: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    context = tl.load(contexts + row).to(tl.int32)
    begin = _first_position(context, window)
    length = _part_length(context - begin, PARTS, LEAST, TILE)
    first = begin + part * length
    if first >= context:
        return
    last = tl.minimum(first + length, context)
    heads = tl.arange(0, GROUP_BLOCK)
    columns = tl.arange(0, SIZE_BLOCK)
    is_query = (heads[:, None] < GROUP) & (columns[None, :] < SIZE)
    query = tl.load(
        queries + row * query_stride + (kv_head * GROUP + heads[:, None]) * SIZE + columns[None, :],
        mask=is_query,
        other=0.0,
    )
    best = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    gathered = tl.zeros([GROUP_BLOCK, SIZE_BLOCK], tl.float32)
    for start in range(first, last, TILE):
        positions = start + tl.arange(0, TILE)
        is_seen = positions < last
        blocks = tl.load(
            table + row * table_row_stride + (positions // PAGE) * table_block_stride, mask=is_seen, other=0
        )
        slots = blocks.to(tl.int64) * PAGE + positions % PAGE
        places = (slots * kv_heads + kv_head)[:, None] * SIZE + columns[None, :]
        is_there = is_seen[:, None] & (columns[None, :] < SIZE)
        key = tl.load(keys + places, mask=is_there, other=0.0).to(query.dtype)
        if IS_EXACT:
            scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        else:
            scores = tl.dot(query, tl.trans(key)) * scale
        if IS_CAPPED:
            scores = softcap - 2.0 * softcap / (tl.exp(scores * (2.0 / softcap)) + 1.0)
        scores = tl.where(is_seen[None, :], scores, float("-inf"))
        largest = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - largest[:, None])
        kept = tl.exp(best - largest)
        value = tl.load(values + places, mask=is_there, other=0.0).to(query.dtype)
        if IS_EXACT:
            product = tl.dot(weights.to(query.dtype), value, input_precision="ieee")
        else:
            product = tl.dot(weights.to(query.dtype), value)
        gathered = gathered * kept[:, None] + product
        total = total * kept + tl.sum(weights, axis=1)
        best = largest
    if PARTS == 1:
        if HAS_SINKS:
            sink = tl.load(sinks + kv_head * GROUP + heads, mask=heads < GROUP, other=0.0).to(tl.float32)
            total += tl.exp(sink - best)
        place = out + (row * kv_heads + kv_head) * GROUP * SIZE + heads[:, None] * SIZE + columns[None, :]
        tl.store(place, (gathered / total[:, None]).to(out.dtype.element_ty), mask=is_query)
    else:
        entry = ((row * kv_heads + kv_head) * PARTS + part) * GROUP
        tl.store(sums + (entry + heads[:, None]) * SIZE + columns[None, :], gathered, mask=is_query)
        tl.store(maxima + entry + heads, best, mask=heads < GROUP)
        tl.store(totals + entry + heads, total, mask=heads < GROUP)


@triton.jit
def _join_parts(
    sums,
    maxima,
    totals,
    contexts,
    out,
    sinks,
    window,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    LEAST: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    num_heads = tl.num_programs(1)
    context = tl.load(contexts + row).to(tl.int32)
    num_seen = context - _first_position(context, window)
    num_parts = tl.cdiv(num_seen, _part_length(num_seen, PARTS, LEAST, TILE))
    parts = tl.arange(0, PARTS_BLOCK)
    columns = tl.arange(0, SIZE_BLOCK)
    is_used = parts < num_parts
    entries = ((row * (num_heads // GROUP) + head // GROUP) * PARTS + parts) * GROUP + head % GROUP
    best = tl.load(maxima + entries, mask=is_used, other=float("-inf"))
    largest = tl.max(best, axis=0)
    weights = tl.exp(best - largest)
    total = tl.sum(weights * tl.load(totals + entries, mask=is_used, other=0.0), axis=0)
    if HAS_SINKS:
        total += tl.exp(tl.load(sinks + head).to(tl.float32) - largest)
    is_there = is_used[:, None] & (columns[None, :] < SIZE)
    gathered = tl.load(sums + entries[:, None] * SIZE + columns[None, :], mask=is_there, other=0.0)
    result = tl.sum(gathered * weights[:, None], axis=0) / total
    tl.store(out + (row * num_heads + head) * SIZE + columns, result.to(out.dtype.element_ty), mask=columns < SIZE)


def attend_rows(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    contexts: torch.Tensor,
    *,
    block_size: int,
    scale: float,
    num_parts: int,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend each row over its context, which has at least one position, or over its last `window` positions.

    Returns (S, H, D) contiguous, in the dtype of the queries.

    queries: (S, H, D), rows may be apart   keys, values: (slots, K, D) contiguous
    table: (S, N) int32, any strides   contexts: (S,) int64   sinks: (H,)
    """
    num_rows, num_heads, size = queries.shape
    kv_heads = keys.shape[1]
    group = num_heads // kv_heads
    out = torch.empty(num_rows, num_heads, size, dtype=queries.dtype, device=queries.device)
    entries = (num_rows, kv_heads, num_parts, group) if num_parts > 1 else (0,)
    sums = torch.empty(*entries, size, dtype=torch.float32, device=queries.device)
    maxima, totals = (torch.empty(entries, dtype=torch.float32, device=queries.device) for _ in range(2))
    size_block = max(LEAST_ROWS, triton.next_power_of_2(size))
    tile = max(LEAST_ROWS, min(TILE, TILE_BYTES // (size_block * keys.element_size())))
    sizes = {"GROUP": group, "SIZE": size, "SIZE_BLOCK": size_block}
    cut = {"TILE": tile, "PARTS": num_parts, "LEAST": LEAST_PART}
    _attend_part[(num_rows, kv_heads, num_parts)](
        queries,
        keys,
        values,
        table,
        contexts,
        sums,
        maxima,
        totals,
        out,
        out if sinks is None else sinks,
        scale,
        softcap,
        window,
        kv_heads,
        queries.stride(0),
        table.stride(0),
        table.stride(1),
        GROUP_BLOCK=max(LEAST_ROWS, triton.next_power_of_2(group)),
        PAGE=block_size,
        IS_EXACT=queries.dtype is torch.float32,
        IS_CAPPED=softcap > 0,
        HAS_SINKS=sinks is not None,
        num_warps=4,
        **sizes,
        **cut,
    )
    if num_parts > 1:
        blocks = triton.next_power_of_2(num_parts)
        _join_parts[(num_rows, num_heads)](
            sums,
            maxima,
            totals,
            contexts,
            out,
            out if sinks is None else sinks,
            window,
            PARTS_BLOCK=blocks,
            HAS_SINKS=sinks is not None,
            num_warps=1,
            **sizes,
            **cut,
        )
    return out


def parts_for(num_rows: int, kv_heads: int, num_processors: int, max_context: int) -> int:
    """Return the number of parts, a power of two, that gives each processor two programs for so many rows."""
    wanted = triton.cdiv(2 * num_processors, num_rows * kv_heads)
    return min(triton.next_power_of_2(wanted), MAX_PARTS, triton.next_power_of_2(triton.cdiv(max_context, LEAST_PART)))
