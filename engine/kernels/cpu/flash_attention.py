"""The kernel of paged attention over a cache in bfloat16, for processors that multiply it in pairs (AVX512-BF16).

Positions are attended SPAN at a time with a running maximum (FlashAttention-2, arXiv 2307.08691), so scratch memory
does not grow with the context. PIECE_SPANS of them make a piece, which is computed by itself and then merged into those
before it: threads may share the pieces of one row (Flash-Decoding, https://pytorch.org/blog/flash-decoding/).

A tile is a few rows of one sequence with the query heads that share a kv head. It opens each span once: adjacent pairs
of numbers of a key, or of two positions' values, make one lane. Queries and probabilities are rounded to bfloat16; sums
are float32.

Spans end at multiples of SPAN, and what a row does not see has a probability of zero. So its result does not depend on
the others of its tile, nor on how a prompt is cut. Blocks that no row of a tile sees are not read.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.cpu.atomics import add_atomic, store_atomic
from engine.kernels.cpu.attention import cap_scores, prefetch_block
from engine.kernels.cpu.flash_vectors import (
    BLOCKS_AT_ONCE,
    MOST_AT_ONCE,
    SPAN,
    SPAN_BLOCKS,
    STATE_BYTES,
    VECTOR_BYTES,
    merge_states,
    merge_sums,
    narrow_vector,
    pair_keys,
    pair_values,
    raise_tops,
    score_and_soften,
    score_cached,
    score_opened,
    soften,
    sum_cached,
    sum_opened,
)
from engine.kernels.cpu.integer_vectors import LANES
from engine.kernels.cpu.primitives import floats, integers, store_row
from engine.kernels.cpu.vectors import EXACT, HEAD_STEP, queries_at_once

PIECE_SPANS = 4
PIECE_BLOCKS = PIECE_SPANS * SPAN_BLOCKS
LEAST = -3e38
"""The running maximum before the first position, at least. If all scores are below it, the result is NaN."""
TASKS_PER_THREAD = 2
"""A row computes its kv heads together if its context is at most the sum of all, divided by so many for each thread."""
LOG2_E = 1.4426950408889634
"""Scores are multiplied by it, so that probabilities are powers of two."""


def scratch_floats(queries: int, num_heads: int, size: int) -> int:
    """Return a thread's scratch floats: a span's keys and values, scores and probabilities of the queries that are
    computed at once (all query heads of a row) and of those before, then of each query the sums and states of a piece
    and of those before it, its numbers, and work memory.

    `queries`: of the largest tile.
    """
    at_once, queries = max(2 * MOST_AT_ONCE, num_heads), max(queries, num_heads)
    return size * SPAN + at_once * (SPAN + SPAN // 2) + queries * (2 * (size + 3) + size // 2) + size + 1


def shared_floats(num_heads: int, kv_heads: int, size: int, most_pieces: int) -> int:
    """Return the floats of a row whose pieces threads share: counts by kv head, then of each piece sums and states."""
    return _lines_of(kv_heads * 8) // 4 + most_pieces * _lines_of(num_heads * (size * 4 + STATE_BYTES)) // 4


def _lines_of(num_bytes: int) -> int:
    """Return the bytes of whole cache lines."""
    return -(-num_bytes // 64) * 64


_lines = njit(inline="always")(_lines_of)


def num_pieces(num_blocks: int) -> int:
    """Return the pieces of so many blocks."""
    return -(-num_blocks // PIECE_BLOCKS)


@njit(inline="always")
def _first_seen(shortest, window):
    """Return the first block that any row sees. shortest: the smallest context."""
    return max(0, shortest - window) // LANES if window > 0 else 0


@njit(inline="always")
def _load_queries(a, tile_tokens, head, size, queries, work):
    """Write the scaled queries of a tile, heads of a token one after another. work: `size` floats and a number."""
    group, given_size = a[2] // a[3], a[4]
    padded = floats(work, size + 1)
    padded[size] = floats(a[20], 1)[0] * np.float32(1.0 if floats(a[20], 2)[1] > 0.0 else LOG2_E)
    for i in range(given_size, size):
        padded[i] = np.float32(0.0)
    for number in range(len(tile_tokens) * group):
        member = head * group + number % group
        given = floats(a[13] + (tile_tokens[number // group] * a[23] + member * given_size) * 4, given_size)
        for i in range(given_size):
            padded[i] = given[i]
        for i in range(0, size, LANES):
            narrow_vector(work + i * 4, work + size * 4, queries + (number * size + i) * 2)


@njit(inline="always")
def _begin(num_queries, size, sums, states):
    """Begin a piece, or what pieces are merged into."""
    total, state = floats(sums, num_queries * size), floats(states, num_queries * 3)
    for i in range(num_queries * size):
        total[i] = np.float32(0.0)
    for i in range(num_queries):
        state[3 * i], state[3 * i + 1] = np.float32(LEAST), np.float32(0.0)


@njit(inline="always")
def _begin_with_sinks(a, head, num_queries, states):
    """Let the sinks of the query heads of a kv head take their shares, before any piece."""
    group = a[2] // a[3]
    state = floats(states, num_queries * 3)
    for i in range(num_queries):
        member = head * group + i % group
        sink = floats(a[26], member + 1)[member] * np.float32(LOG2_E)
        state[3 * i] = np.float32(LEAST) if sink < LEAST else sink
        state[3 * i + 1] = np.float32(1.0)


@njit(inline="always")
def _merge(num_queries, size, sums, states, piece_sums, piece_states):
    """Merge a piece into those before it."""
    number = 0
    while number < num_queries:
        taken = queries_at_once(num_queries - number)
        merge_states(taken, states + number * STATE_BYTES, piece_states + number * STATE_BYTES)
        for i in range(number, number + taken):
            total, piece, offset = sums + i * size * 4, piece_sums + i * size * 4, i * STATE_BYTES
            merge_sums(total, states + offset, piece, piece_states + offset, size // LANES)
        number += taken


@njit(inline="always")
def _prefetch(a, address, blocks, block, last, first_head, last_head):
    """Prefetch keys or values of a block, if it is before `last`."""
    if block < last:
        count = a[27] * LANES
        prefetch_block(address, True, blocks[block] * a[28] + first_head * count, (last_head - first_head) * count)


@njit(inline="always")
def _open_keys(a, head, blocks, first, last, size, keys):
    """Open the keys of blocks `first` to `last`."""
    count = size * LANES
    for block in range(first, last):
        _prefetch(a, a[10], blocks, block + 1, last, head, head + 1)
        _prefetch(a, a[11], blocks, block + 1, last, head, head + 1)
        pair_keys(a[10] + (blocks[block] * a[28] + head * count) * 2, keys + (block - first) * count * 2, size // 2)


@njit(inline="always")
def _open_values(a, head, blocks, first, last, begin, end, size, values, work):
    """Open the values of blocks `first` to `last`; those of positions outside `begin` to `end` are zeros.

    Return False if any is not finite: a probability of zero would keep it. work: `size` floats
    """
    nothing = floats(work, size)
    for i in range(size):
        nothing[i] = np.float32(0.0)
    found = np.int64(0)
    for block in range(first, last):
        row = a[11] + (blocks[block] * a[28] + head * size * LANES) * 2
        opened = values + (block - first) * size * LANES * 2
        for position in range(block * LANES, (block + 1) * LANES, 2):
            even = row if begin <= position < end else work
            odd = row + size * 2 if begin <= position + 1 < end else work
            found |= pair_values(even, odd, opened, size // LANES)
            row += size * 4
            opened += size * 4
    return found == 0


@njit(inline="always")
def _hide(score, first, last, end):
    """Give the scores before `first`, and from `last` to `end`, -inf."""
    for i in range(first):
        score[i] = -np.inf
    for i in range(last, end):
        score[i] = -np.inf


@njit(inline="always")
def _weigh(seen, num_vectors, softcap, scores, probabilities, states):
    """Turn the scores of a span into probabilities. seen: of each query, the positions it sees, from and to."""
    for i in range(len(seen)):
        score = floats(scores + i * SPAN * 4, SPAN)
        if softcap > 0.0:
            cap_scores(score, 0, num_vectors * LANES, softcap, LOG2_E)
        _hide(score, seen[i, 0], seen[i, 1], num_vectors * LANES)
    raise_tops(len(seen), scores, num_vectors, states)
    soften(len(seen), scores, num_vectors, probabilities, states)


@njit(inline="always")
def _scale(out, states, taken, size):
    """Multiply what the queries have summed by the factors of their states."""
    for i in range(taken):
        factor = floats(states + i * STATE_BYTES, 3)[2]
        if factor != np.float32(1.0):
            total = floats(out + i * size * 4, size)
            for j in range(size):
                total[j] *= factor


@njit(inline="always")
def _sum_span(taken, weights, num_pairs, size, values, out):
    """Add opened values, of `num_pairs` pairs of positions."""
    for d in range(0, size, HEAD_STEP):
        sum_opened(taken, weights, SPAN * 2, values + d * 4, size * 4, num_pairs, out + d * 4, size * 4)


@njit(**EXACT)
def _attend_span(num_queries, size, queries, keys, values, scores, probabilities, sums, states):
    """Attend a span that all queries see whole, MOST_AT_ONCE at once: some are scored while those before are softened.

    `num_queries` is a multiple of MOST_AT_ONCE, one at least.
    """
    row_bytes = size * 2
    now, earlier = scores, scores + MOST_AT_ONCE * SPAN * 4
    for i in range(0, SPAN_BLOCKS, BLOCKS_AT_ONCE):
        at, target = keys + i * LANES * row_bytes, now + i * VECTOR_BYTES
        score_opened(MOST_AT_ONCE, queries, row_bytes, at, LANES * row_bytes, size // 2, target, SPAN * 4)
    raise_tops(MOST_AT_ONCE, now, SPAN_BLOCKS, states)
    for number in range(MOST_AT_ONCE, num_queries, MOST_AT_ONCE):
        now, earlier = earlier, now
        state, out = states + (number - MOST_AT_ONCE) * STATE_BYTES, sums + (number - MOST_AT_ONCE) * size * 4
        score_and_soften(queries + number * row_bytes, row_bytes, keys, size // 2, now, earlier, probabilities, state)
        raise_tops(MOST_AT_ONCE, now, SPAN_BLOCKS, state + MOST_AT_ONCE * STATE_BYTES)
        _scale(out, state, MOST_AT_ONCE, size)
        _sum_span(MOST_AT_ONCE, probabilities, SPAN // 2, size, values, out)
    last = num_queries - MOST_AT_ONCE
    soften(MOST_AT_ONCE, now, SPAN_BLOCKS, probabilities, states + last * STATE_BYTES)
    _scale(sums + last * size * 4, states + last * STATE_BYTES, MOST_AT_ONCE, size)
    _sum_span(MOST_AT_ONCE, probabilities, SPAN // 2, size, values, sums + last * size * 4)


@njit(inline="always")
def _store_sums(a, tile_tokens, head, size, sums, states):
    """Divide the sums of a tile's queries by those of their probabilities, and write them to the result."""
    group, given_size = a[2] // a[3], a[4]
    is_half = a[19] != 0
    for number in range(len(tile_tokens) * group):
        share = np.float32(1.0) / floats(states + number * STATE_BYTES, 2)[1]
        result = floats(sums + number * size * 4, given_size)
        for i in range(given_size):
            result[i] *= share
        row = tile_tokens[number // group] * a[2] + head * group + number % group
        store_row(a[18], is_half, row, given_size, result)


@njit(**EXACT)
def _attend_tile(
    a,
    tile_tokens,
    contexts,
    blocks,
    head,
    keys,
    values,
    scores,
    probabilities,
    sums,
    states,
    piece_sums,
    piece_states,
    queries,
    work,
    seen,
):
    """Attend a tile for the query heads of a kv head. It opens each span once."""
    group, size, window = a[2] // a[3], a[27], a[25]
    softcap = floats(a[20], 2)[1]
    row_bytes, block_bytes = size * 2, size * LANES * 2
    num_queries, num_blocks = len(contexts) * group, len(blocks)
    shortest, longest = contexts[0], contexts[-1]
    _load_queries(a, tile_tokens, head, size, queries, work)
    _begin(num_queries, size, sums, states)
    if a[26] != 0:
        _begin_with_sinks(a, head, num_queries, states)
    first_seen = _first_seen(shortest, window)
    first_span = first_seen // SPAN_BLOCKS * SPAN_BLOCKS
    piece, piece_state = sums, states
    for span in range(first_span, num_blocks, SPAN_BLOCKS):
        if (span % PIECE_BLOCKS == 0 or span == first_span) and (span > first_span or a[26] != 0):
            piece, piece_state = piece_sums, piece_states
            _begin(num_queries, size, piece, piece_state)
        begin, end = max(span, first_seen), min(num_blocks, span + SPAN_BLOCKS)
        first = begin * LANES
        _open_keys(a, head, blocks, begin, end, size, keys)
        is_finite = _open_values(a, head, blocks, begin, end, 0, longest, size, values, work)
        number = 0
        sees_all = begin == span and shortest >= first + SPAN and (window <= 0 or window >= longest - first)
        if sees_all and is_finite and softcap <= 0.0 and num_queries >= MOST_AT_ONCE:
            number = num_queries // MOST_AT_ONCE * MOST_AT_ONCE
            _attend_span(number, size, queries, keys, values, scores, probabilities, piece, piece_state)
        while number < num_queries:
            taken = queries_at_once(num_queries - number)
            furthest = contexts[(number + taken - 1) // group]
            num_vectors = min(end - begin, (furthest - first + LANES - 1) // LANES)
            is_seen = False
            for i in range(taken):
                context = contexts[(number + i) // group]
                seen[i, 1] = max(0, min(num_vectors * LANES, context - first))
                seen[i, 0] = min(seen[i, 1], max(0, context - window - first)) if window > 0 else 0
                is_seen = is_seen or seen[i, 0] < seen[i, 1]
            query, out = queries + number * row_bytes, piece + number * size * 4
            state = piece_state + number * STATE_BYTES
            number += taken
            if not is_seen:
                continue
            for i in range(0, num_vectors, BLOCKS_AT_ONCE):
                at, target = keys + i * block_bytes, scores + i * VECTOR_BYTES
                score_opened(taken, query, row_bytes, at, block_bytes, size // 2, target, SPAN * 4)
            _weigh(seen[:taken], num_vectors, softcap, scores, probabilities, state)
            _scale(out, state, taken, size)
            if is_finite:
                _sum_span(taken, probabilities, num_vectors * LANES // 2, size, values, out)
            else:
                for i in range(taken):
                    begins, ends = first + seen[i, 0], first + seen[i, 1]
                    _open_values(a, head, blocks, begin, end, begins, ends, size, values, work)
                    weights, target = probabilities + i * SPAN * 2, out + i * size * 4
                    _sum_span(1, weights, num_vectors * LANES // 2, size, values, target)
        if piece != sums and (end == num_blocks or end % PIECE_BLOCKS == 0):
            _merge(num_queries, size, sums, states, piece, piece_state)
    _store_sums(a, tile_tokens, head, size, sums, states)


@njit(**EXACT)
def _attend_piece(
    a,
    context,
    blocks,
    first_head,
    last_head,
    first_span,
    values,
    scores,
    probabilities,
    sums,
    states,
    queries,
    work,
    seen,
):
    """Attend a row from a span to the end of its piece, for the query heads of kv heads that lie side by side.

    Keys and values are multiplied as they lie in the cache. The processor itself prefetches what is read in order; with
    prefetches of ours beside it it reads at half the speed. Those of some heads alone lie apart.
    """
    group, size, window = a[2] // a[3], a[27], a[25]
    softcap = floats(a[20], 2)[1]
    row_bytes, head_bytes = size * 2, size * LANES * 2
    num_queries, num_blocks = (last_head - first_head) * group, len(blocks)
    num_fetched = 0 if last_head - first_head == a[3] else num_blocks
    first_seen = _first_seen(context, window)
    last_span = min(num_blocks, (first_span // PIECE_BLOCKS + 1) * PIECE_BLOCKS)
    _begin(num_queries, size, sums, states)
    for span in range(first_span, last_span, SPAN_BLOCKS):
        begin, end = max(span, first_seen), min(num_blocks, span + SPAN_BLOCKS)
        first = begin * LANES
        begins, ends = max(0, context - window - first) if window > 0 else 0, min(SPAN, context - first)
        seen[:, 0], seen[:, 1] = begins, ends
        for block in range(begin, end):
            _prefetch(a, a[10], blocks, block + 1, num_fetched, first_head, last_head)
            at = a[10] + blocks[block] * a[28] * 2
            target = scores + (block - begin) * VECTOR_BYTES
            number = 0
            while number < num_queries:
                taken = queries_at_once(group - number % group)
                key, query = at + (first_head + number // group) * head_bytes, queries + number * row_bytes
                score_cached(taken, query, row_bytes, key, 0, size // 2, target + number * SPAN * 4, SPAN * 4)
                number += taken
        number = 0
        while number < num_queries:
            taken = queries_at_once(num_queries - number)
            score, weights = scores + number * SPAN * 4, probabilities + number * SPAN * 2
            state = states + number * STATE_BYTES
            _weigh(seen[:taken], end - begin, softcap, score, weights, state)
            _scale(sums + number * size * 4, state, taken, size)
            number += taken
        for block in range(begin, end):
            _prefetch(a, a[11], blocks, block + 1, num_fetched, first_head, last_head)
            start = (block - begin) * LANES
            number = 0
            while number < num_queries:
                taken = queries_at_once(group - number % group)
                head = first_head + number // group
                weights, out = probabilities + (number * SPAN + start) * 2, sums + number * size * 4
                if begins <= start and start + LANES <= ends:
                    value = a[11] + blocks[block] * a[28] * 2 + head * head_bytes
                    for d in range(0, size, HEAD_STEP):
                        target = out + d * 4
                        sum_cached(taken, weights, SPAN * 2, value + d * 2, size * 4, LANES // 2, target, size * 4)
                elif begins < start + LANES:
                    _open_values(a, head, blocks, block, block + 1, first + begins, first + ends, size, values, work)
                    _sum_span(taken, weights, LANES // 2, size, values, out)
                number += taken


@njit(inline="always")
def _store_heads(a, tile_tokens, first_head, last_head, sums, states):
    """Store the result of a row for the query heads of some kv heads."""
    group, size = a[2] // a[3], a[27]
    for head in range(first_head, last_head):
        number = (head - first_head) * group
        _store_sums(a, tile_tokens, head, size, sums + number * size * 4, states + number * STATE_BYTES)


def attend(a, thread, part, parts):
    """Attend the rows, whose keys and values are already stored. a: as for `attention.attend`; the cache is half.

    a[29]: the number of threads   a[30]: where the pieces of rows are shared, of each row a count of finished tasks for
    each kv head, zeros, then sums and states of each piece; or 0   a[31]: the most pieces of a row

    The kv heads of a row are computed together where there are rows enough for all threads, or pieces of its own: the
    cache is then read in its order, at twice the speed. A row here is a tile of one, with few query heads a kv head.
    """
    group, kv_heads, size = a[2] // a[3], a[3], a[27]
    num_tiles = integers(a[1], 1)[0]
    ends = integers(a[1] + 8, num_tiles + 1)
    tokens, all_contexts = integers(a[14], ends[num_tiles]), integers(a[15], ends[num_tiles])
    at_once, most_queries = max(2 * MOST_AT_ONCE, a[2]), max(a[24], a[2])
    keys = a[21] + thread * a[22] * 4
    values = keys + SPAN * size * 2
    scores = values + SPAN * size * 2
    probabilities = scores + at_once * SPAN * 4
    sums = probabilities + at_once * SPAN * 2
    piece_sums = sums + most_queries * size * 4
    queries = piece_sums + most_queries * size * 4
    states = queries + most_queries * size * 2
    piece_states = states + most_queries * STATE_BYTES
    work = piece_states + most_queries * STATE_BYTES
    seen = np.empty((MOST_AT_ONCE, 2), np.int64)
    count_bytes, piece_bytes = _lines(kv_heads * 8), _lines(a[2] * (size * 4 + STATE_BYTES))
    total, task = np.int64(0), np.int64(0)
    for i in range(len(all_contexts)):
        total += all_contexts[i]
    for tile in range(num_tiles):
        tile_tokens, contexts = tokens[ends[tile] : ends[tile + 1]], all_contexts[ends[tile] : ends[tile + 1]]
        context = contexts[-1]
        blocks = integers(a[16] + tile * a[17] * 8, (context + LANES - 1) // LANES)
        first_span = _first_seen(contexts[0], a[25]) // SPAN_BLOCKS * SPAN_BLOCKS
        first_piece, end_piece = first_span // PIECE_BLOCKS, (len(blocks) + PIECE_BLOCKS - 1) // PIECE_BLOCKS
        pieces = end_piece - first_piece
        if len(contexts) > 1 or group > MOST_AT_ONCE:
            for head in range(kv_heads):
                task += 1
                if task % parts == part:
                    _attend_tile(
                        a,
                        tile_tokens,
                        contexts,
                        blocks,
                        head,
                        keys,
                        values,
                        scores,
                        probabilities,
                        sums,
                        states,
                        piece_sums,
                        piece_states,
                        queries,
                        work,
                        seen,
                    )
            continue
        tasks = TASKS_PER_THREAD * a[29]
        is_whole = a[29] == 1 or tasks * context <= total
        is_shared = not is_whole and a[30] != 0 and pieces > 1
        heads_at_once = kv_heads if is_whole or (is_shared and pieces >= tasks) else 1
        for head in range(0, kv_heads, heads_at_once):
            last, num_queries = head + heads_at_once, heads_at_once * group
            shared = a[30] + tile * (count_bytes + a[31] * piece_bytes)
            counted, shared = shared + head * 8, shared + count_bytes + head * group * size * 4
            shared_states = shared + (a[2] - head * group) * size * 4 + head * group * STATE_BYTES
            is_loaded = False
            for piece in range(pieces):
                if piece == 0 or is_shared:
                    task += 1
                if task % parts != part:
                    continue
                if not is_loaded:
                    for one in range(head, last):
                        _load_queries(a, tile_tokens, one, size, queries + (one - head) * group * size * 2, work)
                    is_loaded = True
                out, state = sums, states
                if is_shared:
                    out, state = shared + piece * piece_bytes, shared_states + piece * piece_bytes
                elif piece > 0 or a[26] != 0:
                    out, state = piece_sums, piece_states
                start = max(first_span, (first_piece + piece) * PIECE_BLOCKS)
                _attend_piece(
                    a,
                    context,
                    blocks,
                    head,
                    last,
                    start,
                    values,
                    scores,
                    probabilities,
                    out,
                    state,
                    queries,
                    work,
                    seen,
                )
                if is_shared:
                    if add_atomic(counted, 1) < pieces - 1:
                        continue
                    store_atomic(counted, 0)
                if is_shared or (piece == 0 and a[26] != 0):
                    _begin(num_queries, size, sums, states)
                    if a[26] != 0:
                        for one in range(head, last):
                            _begin_with_sinks(a, one, group, states + (one - head) * group * STATE_BYTES)
                if is_shared:
                    for i in range(pieces):
                        at = i * piece_bytes
                        _merge(num_queries, size, sums, states, shared + at, shared_states + at)
                elif out != sums:
                    _merge(num_queries, size, sums, states, out, state)
                if is_shared or piece == pieces - 1:
                    _store_heads(a, tile_tokens, head, last, sums, states)
