"""The kernel of paged attention for rows that each see a context of their own: decodes, and every token in batch-invariant mode.

Keys lie (B, K, D, P): a query weighs the D rows of a block into its P scores. Values lie (B, K, P, D): a position's probability weighs
its row. Both inner loops run along memory; the cache is read where it lies, once per group of query heads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.primitives import (
    OPTIONS,
    exp,
    floats,
    halves,
    integers,
    narrow,
    prefetch,
    store_row,
    team_barrier,
    widen,
)
from engine.kernels.vectors import (
    HEAD_STEP,
    LANES,
    weigh_keys_float,
    weigh_keys_half,
    weigh_values_float,
    weigh_values_half,
)


@njit(inline="always")
def store_token(a, token):
    """Write the new key and value of one token into its slot."""
    kv_heads, size, block_size, stride = a[3], a[4], a[5], a[9]
    slot = integers(a[8], a[0])[token]
    block, offset = slot // block_size, slot % block_size
    for head in range(kv_heads):
        key = floats(a[6] + (token * stride + head * size) * 4, size)
        value = floats(a[7] + (token * stride + head * size) * 4, size)
        base = (block * kv_heads + head) * size * block_size
        if a[12] != 0:
            keys, values = halves(a[10] + base * 2, size * block_size), halves(a[11] + base * 2, size * block_size)
            for d in range(size):
                keys[d * block_size + offset] = narrow(key[d])
                values[offset * size + d] = narrow(value[d])
        else:
            plain_keys, plain_values = floats(a[10] + base * 4, size * block_size), floats(a[11] + base * 4, size * block_size)
            for d in range(size):
                plain_keys[d * block_size + offset] = key[d]
                plain_values[offset * size + d] = value[d]


@njit(inline="always")
def open_block(address, is_half, base, count, work):
    """Address of the float32 contents of one head's block: the cache itself, or `work`, filled with its bfloat16 widened."""
    if is_half:
        source, target = halves(address + base * 2, count), floats(work, count)
        for i in range(count):
            target[i] = widen(source[i])
        return work
    return address + base * 4


@njit(inline="always")
def prefetch_block(address, is_half, base, count):
    """Bring in one head's block while the one before it is computed: the jumps between blocks defeat the processor's own prefetching."""
    width = 2 if is_half else 4
    first = address + base * width
    for offset in range(0, count * width, 64):
        prefetch(first + offset)


@njit(inline="always")
def weigh_keys(query, keys, scores, size, block_size):
    """scores[p] = sum over d of query[d] * keys[d, p]; four d at a time. All float32 addresses."""
    total = floats(scores, block_size)
    for p in range(block_size):
        total[p] = 0.0
    row = block_size * 4
    fours = size // 4 * 4
    for d in range(0, fours, 4):
        q = floats(query + d * 4, 4)
        w, x, y, z = q[0], q[1], q[2], q[3]
        first = keys + d * row
        a, b = floats(first, block_size), floats(first + row, block_size)
        c, e = floats(first + 2 * row, block_size), floats(first + 3 * row, block_size)
        for p in range(block_size):
            total[p] += w * a[p] + x * b[p] + y * c[p] + z * e[p]
    for d in range(fours, size):
        w = floats(query + d * 4, 1)[0]
        a = floats(keys + d * row, block_size)
        for p in range(block_size):
            total[p] += w * a[p]


@njit(inline="always")
def softmax(scores, context):
    """Turn the first `context` scores into probabilities."""
    top = scores[0]
    for i in range(context):
        top = max(top, scores[i])
    for i in range(context):
        scores[i] = exp(scores[i] - top)
    total = np.float32(0.0)
    for i in range(context):
        total += scores[i]
    factor = np.float32(1.0) / total
    for i in range(context):
        scores[i] *= factor


@njit(inline="always")
def weigh_values(scores, values, num_positions, size, out):
    """out[d] += sum over positions of scores[p] * values[p, d]. Positions behind the context are not read. All float32 addresses."""
    total = floats(out, size)
    row = size * 4
    fours = num_positions // 4 * 4
    for p in range(0, fours, 4):
        s = floats(scores + p * 4, 4)
        w, x, y, z = s[0], s[1], s[2], s[3]
        first = values + p * row
        a, b = floats(first, size), floats(first + row, size)
        c, e = floats(first + 2 * row, size), floats(first + 3 * row, size)
        for d in range(size):
            total[d] += w * a[d] + x * b[d] + y * c[d] + z * e[d]
    for p in range(fours, num_positions):
        w = floats(scores + p * 4, 1)[0]
        a = floats(values + p * row, size)
        for d in range(size):
            total[d] += w * a[d]


@njit(inline="always")
def attend_rows(a, thread, threads, size, block_size):
    """Attend this thread's share of (row, kv head) pairs."""
    rows, heads, kv_heads = a[1], a[2], a[3]
    group = heads // kv_heads
    count = size * block_size
    is_half = a[12] != 0
    is_vector = block_size == LANES and size % HEAD_STEP == 0
    padded = a[17] * block_size * 4
    tokens, contexts = integers(a[14], rows), integers(a[15], rows)
    scale = floats(a[20], 1)[0]
    widened = a[21] + thread * a[22] * 4
    queries = widened + count * 4
    sums = queries + group * size * 4
    weights = sums + group * size * 4
    for task in range(thread, rows * kv_heads, threads):
        row, head = task // kv_heads, task % kv_heads
        token, context = tokens[row], contexts[row]
        num_blocks = (context + block_size - 1) // block_size
        blocks = integers(a[16] + row * a[17] * 8, num_blocks)
        given = floats(a[13] + (token * a[23] + head * group * size) * 4, group * size)
        query, out = floats(queries, group * size), floats(sums, group * size)
        for i in range(group * size):
            query[i] = given[i] * scale
            out[i] = 0.0
        for block in range(num_blocks):
            if block + 1 < num_blocks:
                prefetch_block(a[10], is_half, (blocks[block + 1] * kv_heads + head) * count, count)
            base = (blocks[block] * kv_heads + head) * count
            if is_vector:
                for member in range(group):
                    query_at, scores_at = queries + member * size * 4, weights + member * padded + block * block_size * 4
                    if is_half:
                        weigh_keys_half(query_at, a[10] + base * 2, scores_at, size)
                    else:
                        weigh_keys_float(query_at, a[10] + base * 4, scores_at, size)
                continue
            keys = open_block(a[10], is_half, base, count, widened)
            for member in range(group):
                weigh_keys(queries + member * size * 4, keys, weights + member * padded + block * block_size * 4, size, block_size)
        for member in range(group):
            softmax(floats(weights + member * padded, context), context)
        for block in range(num_blocks):
            if block + 1 < num_blocks:
                prefetch_block(a[11], is_half, (blocks[block + 1] * kv_heads + head) * count, count)
            base = (blocks[block] * kv_heads + head) * count
            first = block * block_size
            num_here = min(block_size, context - first)
            if is_vector:
                for member in range(group):
                    scores_at, out_at = weights + member * padded + first * 4, sums + member * size * 4
                    for part in range(0, size, HEAD_STEP):
                        if is_half:
                            weigh_values_half(scores_at, a[11] + (base + part) * 2, size * 2, num_here, out_at + part * 4)
                        else:
                            weigh_values_float(scores_at, a[11] + (base + part) * 4, size * 4, num_here, out_at + part * 4)
                continue
            values = open_block(a[11], is_half, base, count, widened)
            for member in range(group):
                weigh_values(weights + member * padded + first * 4, values, num_here, size, sums + member * size * 4)
        store_row(a[18] + (token * heads + head * group) * size * (2 if a[19] != 0 else 4), a[19] != 0, 0, group * size, out)


@njit(**OPTIONS)
def attend(a, thread, threads):
    """Store the new keys and values of all tokens, then attend the rows.

    a: 0 tokens, 1 rows, 2 query heads, 3 kv heads, 4 head size D, 5 block size P, 6 k, 7 v (float32), 8 slots (int64),
       9 floats between two tokens in k and v, 10 keys, 11 values of this layer, 12 cache is half,
       13 q (float32), 14 token of each row (int64), 15 context of each row (int64), 16 block table (int64), 17 its width,
       18 out (tokens, H, D), 19 out is half, 20 scale (float32, at an address), 21 scratch (float32), 22 its floats a thread,
       23 floats between two tokens in q
    """
    for token in range(thread, a[0], threads):
        store_token(a, token)
    if threads > 1:
        team_barrier()
    attend_rows(a, thread, threads, a[4], a[5])
