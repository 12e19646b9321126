"""The kernel of paged attention for rows with a context each: decodes, drafts, the tokens of prompts.

Keys are (B, K, D, P): a query adds the D rows of a block, weighted, into P scores. Values are (B, K, P, D): a
position's probability weights its row. Zeros behind keys make D a size that the vectors take. The cache is read in
place, once per tile: a few rows of one sequence with the query heads that share a kv head. A row's result does not
depend on the others of its tile.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.cpu.integer_vectors import LANES
from engine.kernels.cpu.primitives import exp, floats, halves, integers, narrow, prefetch, store_row, widen
from engine.kernels.cpu.vectors import HEAD_STEP, QUERIES_AT_ONCE, score_block, softmax, sum_block

MAX_QUERIES_AT_ONCE = QUERIES_AT_ONCE[0]
STRIDE_UNIT = 16
"""Floats in a cache line. The scores of two queries are an odd number of lines apart, to use all sets of the cache."""


@njit(inline="always")
def has_vectors(size, block_size):
    """Return True if heads and blocks of these sizes are computed by vectors.py."""
    return block_size == LANES and size % HEAD_STEP == 0


def scratch_floats(queries: int, size: int, block_size: int, width: int) -> int:
    """Return a thread's scratch floats: a widened block, then each query of a tile, its result, its scores."""
    return size * block_size + queries * (2 * size + width * block_size + 2 * STRIDE_UNIT)


@njit(inline="always")
def score_stride(num_positions):
    """Return the floats between the scores of two queries, with room for `num_positions` padded to a vector."""
    return (num_positions // STRIDE_UNIT + 1 | 1) * STRIDE_UNIT


@njit(inline="always")
def store_token(a, token):
    """Write the new key and value of one token into its slot, and zeros behind the key: what other layers have left
    there, in another layout, may be no number.
    """
    kv_heads, size, block_size, stride, kept, block_stride = a[3], a[4], a[5], a[9], a[27], a[28]
    slot = integers(a[8], a[0])[token]
    block, offset = slot // block_size, slot % block_size
    for head in range(kv_heads):
        key = floats(a[6] + (token * stride + head * size) * 4, size)
        value = floats(a[7] + (token * stride + head * size) * 4, size)
        base = block * block_stride + head * kept * block_size
        if a[12] != 0:
            keys, values = halves(a[10] + base * 2, kept * block_size), halves(a[11] + base * 2, kept * block_size)
            for d in range(size):
                keys[d * block_size + offset] = narrow(key[d])
                values[offset * kept + d] = narrow(value[d])
            for d in range(size, kept):
                keys[d * block_size + offset] = np.uint16(0)
        else:
            plain_keys = floats(a[10] + base * 4, kept * block_size)
            plain_values = floats(a[11] + base * 4, kept * block_size)
            for d in range(size):
                plain_keys[d * block_size + offset] = key[d]
                plain_values[offset * kept + d] = value[d]
            for d in range(size, kept):
                plain_keys[d * block_size + offset] = np.float32(0.0)


@njit(inline="always")
def open_block(address, is_half, base, count, work):
    """Return the address of one head's block in float32: in the cache itself, or widened from bfloat16 into `work`."""
    if is_half:
        source, target = halves(address + base * 2, count), floats(work, count)
        for i in range(count):
            target[i] = widen(source[i])
        return work
    return address + base * 4


@njit(inline="always")
def prefetch_block(address, is_half, base, count):
    """Prefetch one head's block: jumps between blocks defeat the hardware prefetcher."""
    width = 2 if is_half else 4
    first = address + base * width
    for offset in range(0, count * width, 64):
        prefetch(first + offset)


@njit(inline="always")
def add_weighted_rows(weights, rows, num_rows, size, out):
    """Compute out[i] += sum over r of weights[r] * rows[r, i], four r at a time. All are addresses of float32."""
    total = floats(out, size)
    row_bytes = size * 4
    fours = num_rows // 4 * 4
    for r in range(0, fours, 4):
        four = floats(weights + r * 4, 4)
        w, x, y, z = four[0], four[1], four[2], four[3]
        first = rows + r * row_bytes
        a, b = floats(first, size), floats(first + row_bytes, size)
        c, e = floats(first + 2 * row_bytes, size), floats(first + 3 * row_bytes, size)
        for i in range(size):
            total[i] += w * a[i] + x * b[i] + y * c[i] + z * e[i]
    for r in range(fours, num_rows):
        w = floats(weights + r * 4, 1)[0]
        a = floats(rows + r * row_bytes, size)
        for i in range(size):
            total[i] += w * a[i]


@njit(inline="always")
def cap_scores(score, first, end, softcap, unit):
    """Turn scores into unit * softcap * tanh(score / softcap)."""
    factor, most = np.float32(2.0) / softcap, np.float32(unit) * softcap
    for i in range(first, end):
        score[i] = most - np.float32(2.0) * most / (exp(score[i] * factor) + np.float32(1.0))


@njit(inline="always")
def weigh_positions(scores, unseen, count, softcap, sink):
    """Turn `count` scores into probabilities; the first `unseen` are before the window and keep no meaning.

    `softcap` > 0: scores become softcap * tanh(score / softcap). `sink`: the address of a score that takes its share of
    probability, or 0.
    """
    score = floats(scores, count + 1)
    if softcap > 0.0:
        cap_scores(score, unseen, count, softcap, 1.0)
    if sink != 0:
        score[count] = floats(sink, 1)[0]
    softmax(scores + unseen * 4, count - unseen + (1 if sink != 0 else 0))


@njit(inline="always")
def attend_tiles(a, thread, part, parts, given_size, size, block_size):
    """Attend every `parts`th (tile, kv head) pair from `part` on. Heads of `given_size` are filled up to `size`.

    Queries of a tile are numbered row by row, then head by head.
    """
    group, kv_heads, block_stride = a[2] // a[3], a[3], a[28]
    count = size * block_size
    is_half = a[12] != 0
    width = 2 if is_half else 4
    is_vector = has_vectors(size, block_size)
    num_tiles = integers(a[1], 1)[0]
    ends = integers(a[1] + 8, num_tiles + 1)
    tokens, contexts = integers(a[14], ends[num_tiles]), integers(a[15], ends[num_tiles])
    scale, softcap = floats(a[20], 2)[0], floats(a[20], 2)[1]
    window = a[25]
    query_bytes = size * 4
    widened = a[21] + thread * a[22] * 4
    queries = widened + count * 4
    sums = queries + a[24] * query_bytes
    weights = sums + a[24] * query_bytes
    for task in range(part, num_tiles * kv_heads, parts):
        tile, head = task // kv_heads, task % kv_heads
        first_row, end_row = ends[tile], ends[tile + 1]
        num_queries = (end_row - first_row) * group
        opens = is_half and num_queries > MAX_QUERIES_AT_ONCE
        shortest, longest = contexts[first_row], contexts[end_row - 1]
        num_blocks = (longest + block_size - 1) // block_size
        first_block = max(0, shortest - window) // block_size if window > 0 else 0
        begin = first_block * block_size
        stride = score_stride((num_blocks - first_block) * block_size) * 4
        blocks = integers(a[16] + tile * a[17] * 8, num_blocks)
        query, out = floats(queries, num_queries * size), floats(sums, num_queries * size)
        for row in range(first_row, end_row):
            given = floats(a[13] + (tokens[row] * a[23] + head * group * given_size) * 4, group * given_size)
            for member in range(group):
                place = ((row - first_row) * group + member) * size
                for i in range(given_size):
                    query[place + i] = given[member * given_size + i] * scale
                for i in range(given_size, size):
                    query[place + i] = 0.0
                for i in range(size):
                    out[place + i] = 0.0
        for block in range(first_block, num_blocks):
            if block + 1 < num_blocks:
                prefetch_block(a[10], is_half, blocks[block + 1] * block_stride + head * count, count)
            base = blocks[block] * block_stride + head * count
            scores = weights + (block - first_block) * block_size * 4
            if is_vector and not opens:
                score_block(queries, num_queries, a[10] + base * width, is_half, scores, stride, size)
                continue
            keys = open_block(a[10], is_half, base, count, widened)
            if is_vector:
                score_block(queries, num_queries, keys, False, scores, stride, size)
                continue
            for number in range(num_queries):
                total = floats(scores + number * stride, block_size)
                for i in range(block_size):
                    total[i] = 0.0
                add_weighted_rows(queries + number * query_bytes, keys, size, block_size, scores + number * stride)
        for number in range(num_queries):
            context = contexts[first_row + number // group]
            unseen = max(0, context - window) - begin if window > 0 else 0
            sink = a[26] + (head * group + number % group) * 4 if a[26] != 0 else 0
            weigh_positions(weights + number * stride, unseen, context - begin, softcap, sink)
        for block in range(first_block, num_blocks):
            if block + 1 < num_blocks:
                prefetch_block(a[11], is_half, blocks[block + 1] * block_stride + head * count, count)
            base = blocks[block] * block_stride + head * count
            first = block * block_size
            opened = opens or not is_vector
            values = open_block(a[11], is_half, base, count, widened) if opened else a[11] + base * width
            # Rows that see the whole block are computed together; positions that a row does not see are not read.
            is_whole = first + block_size <= shortest and (window == 0 or first >= longest - window)
            rows_at_once = end_row - first_row if is_whole else 1
            for row in range(first_row, end_row, rows_at_once):
                skipped = max(0, contexts[row] - window - first) if window > 0 else 0
                num_here = min(block_size, contexts[row] - first) - skipped
                if num_here <= 0:
                    continue
                number = (row - first_row) * group
                scores, out_at = weights + number * stride + (first + skipped - begin) * 4, sums + number * query_bytes
                seen = values + skipped * size * (4 if opened else width)
                if is_vector:
                    for step in range(0, size, HEAD_STEP):
                        sum_block(
                            scores,
                            rows_at_once * group,
                            stride,
                            seen + step * (4 if opens else width),
                            is_half and not opens,
                            size * (4 if opens else width),
                            num_here,
                            out_at + step * 4,
                            query_bytes,
                        )
                    continue
                for member in range(rows_at_once * group):
                    add_weighted_rows(scores + member * stride, seen, num_here, size, out_at + member * query_bytes)
        for row in range(first_row, end_row):
            for member in range(group):
                place = a[18] + (tokens[row] * a[2] + head * group + member) * given_size * (2 if a[19] != 0 else 4)
                result = floats(sums + ((row - first_row) * group + member) * query_bytes, given_size)
                store_row(place, a[19] != 0, 0, given_size, result)


def store(a, thread, part, parts):
    """Store the new keys and values of all tokens. a: as for `attend`."""
    for token in range(a[0] * part // parts, a[0] * (part + 1) // parts):
        store_token(a, token)


def attend(a, thread, part, parts):
    """Attend the rows, whose keys and values are already stored.

    a: 0 tokens, 1 tiles (int64: their number, the first row of each, the end of the last), 2 query heads, 3 kv heads,
       4 head size D, 5 block size P, 6 k, 7 v (float32), 8 slots (int64), 9 floats between two tokens in k and v,
       10 keys, 11 values of this layer, 12 cache is half, 13 q (float32), 14 token of each row (int64), 15 context of
       each row (int64), in a tile ascending, 16 block table (int64) by tile, 17 integers between two tiles in it,
       18 out (tokens, H, D), 19 out is half, 20 scale and softcap (float32, at an address), 21 scratch (float32),
       22 its floats a thread, 23 floats between two tokens in q, 24 most queries of a tile, 25 window or 0, 26 sinks
       (float32) of the query heads or 0, 27 head size in the cache, 28 numbers between two blocks in the cache
    """
    attend_tiles(a, thread, part, parts, a[4], a[27], a[5])
