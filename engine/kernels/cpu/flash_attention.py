"""The kernel of paged attention over a cache in bfloat16, for processors that multiply it in pairs (AVX512-BF16).

Positions are attended SPAN at a time with a running maximum (FlashAttention-2, arXiv 2307.08691), so scratch memory
does not grow with the context. A tile is a few rows of one sequence with the query heads that share a kv head. It opens
each span once: adjacent pairs of numbers of a key, or of two positions' values, make one lane. Queries and
probabilities are rounded to bfloat16; sums are float32.

Spans begin at multiples of SPAN, and what a row does not see has a probability of zero. So its result does not depend
on the others of its tile, nor on how a prompt is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.attention import prefetch_block
from engine.kernels.cpu.integer_vectors import FLOAT, FLOATS, LANES, PAIRS, WORD, WORDS, VectorBuilder, is_available
from engine.kernels.cpu.primitives import exp, floats, integers, store_row
from engine.kernels.cpu.vectors import (
    EXACT,
    HEAD_STEP,
    QUERIES_AT_ONCE,
    build_for_each_count,
    constant,
    queries_at_once,
    sum_lanes,
)

SPAN = 256
"""Positions that are scored before their values are summed: both stay in the nearest caches."""
SPAN_BLOCKS = SPAN // LANES
BLOCKS_AT_ONCE = 4
"""Blocks of positions that are scored at once: with six queries, 24 sums in 32 registers."""
MOST_AT_ONCE = QUERIES_AT_ONCE[0]
LEAST = -1e30
"""The running maximum before the first position."""
LOG2_E = 1.4426950408889634
"""Scores are multiplied by it, so that probabilities are powers of two."""
POWERS = (0.009582845494151115, 0.05590645968914032, 0.24024099111557007, 0.6931241750717163, 1.0)
"""Coefficients of 2^x on [-0.5, 0.5], highest first."""
NEAREST = 4
"""The rounding mode of a result as the processor is set: to nearest."""
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_VECTOR = 4 * LANES
_STATE = 4 * 3
"""Bytes of a query's state: the largest score so far, the sum of probabilities, the factor on what was summed before
the last span."""


@cache
def is_possible() -> bool:
    """Return True if this processor has the instructions."""
    return is_available() and bool(llvm.get_host_cpu_features().get("avx512bf16"))


def scratch_floats(queries: int, size: int) -> int:
    """Return a thread's scratch floats: a span's keys and values, scores and probabilities of the queries that are
    computed at once, then sums, numbers and state of each query, and work memory."""
    return size * SPAN + MOST_AT_ONCE * (SPAN + SPAN // 2) + queries * (size + size // 2 + 3) + size + 1


@intrinsic
def _pair_keys(typingctx, keys, out, num_pairs):
    """Open a block of keys: (2 * num_pairs, 16) -> (num_pairs, 16, 2)."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        keys, out, num_pairs = arguments
        with b.loop(num_pairs) as pair:
            row = builder.add(keys, b.times(pair, 4 * LANES))
            b.store(_paired(b, row, b.at(row, 2 * LANES)), builder.add(out, b.times(pair, _VECTOR)), 4)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 3), generate


@intrinsic
def _pair_values(typingctx, first, second, out, num_vectors):
    """Open two positions' values: two rows of 16 * num_vectors -> (num_vectors, 16, 2). Return 0 if all are finite."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        first, second, out, num_vectors = arguments
        found = cgutils.alloca_once_value(builder, ir.Constant(WORD, 0))
        exponent = ir.Constant(PAIRS, [0x7F80] * (2 * LANES))
        with b.loop(num_vectors) as number:
            offset = b.times(number, 2 * LANES)
            pair = _paired(b, builder.add(first, offset), builder.add(second, offset))
            b.store(pair, builder.add(out, b.times(number, _VECTOR)), 4)
            is_broken = builder.icmp_unsigned("==", builder.and_(builder.bitcast(pair, PAIRS), exponent), exponent)
            builder.store(builder.or_(builder.load(found), builder.bitcast(is_broken, WORD)), found)
        return builder.zext(builder.load(found), b.integer)

    return types.int64(*[types.int64] * 4), generate


@intrinsic
def _narrow_vector(typingctx, source, scale, out):
    """Multiply 16 floats by a float at an address, and round them to bfloat16."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        source, scale, out = arguments
        scaled = builder.fmul(b.load(FLOATS, source, 4), b.splat_float(scale))
        b.store(_narrowed(b, scaled), out, 2)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 3), generate


def _make_score(is_opened: bool) -> Callable[..., None]:
    """Make the scoring of BLOCKS_AT_ONCE opened blocks, or of one as it lies in the cache."""
    num_blocks = BLOCKS_AT_ONCE if is_opened else 1

    @intrinsic
    def score(typingctx, count, queries, query_bytes, keys, key_bytes, num_pairs, scores, stride):
        """Score blocks, `key_bytes` apart, for `count` queries of `num_pairs` pairs of numbers."""

        def generate(context, builder, signature, arguments):
            b = VectorBuilder(builder)
            count, *of_loop = arguments
            build_for_each_count(b, count, lambda number: _build_score(b, number, num_blocks, is_opened, *of_loop))
            return context.get_dummy_value()

        return types.none(*[types.int64] * 8), generate

    return score


def _build_score(
    b: VectorBuilder,
    count: int,
    num_blocks: int,
    is_opened: bool,
    queries: Any,
    query_bytes: Any,
    keys: Any,
    key_bytes: Any,
    num_pairs: Any,
    scores: Any,
    stride: Any,
) -> None:
    sums = [[cgutils.alloca_once_value(b.ir, constant(0.0)) for _ in range(num_blocks)] for _ in range(count)]
    rows = [b.ir.add(queries, b.times(query_bytes, number)) for number in range(count)]
    blocks = [b.ir.add(keys, b.times(key_bytes, number)) for number in range(num_blocks)]
    with b.loop(num_pairs) as pair:
        places = [b.ir.add(block, b.times(pair, _VECTOR)) for block in blocks]
        loaded = [b.load(WORDS, at, 4) if is_opened else _paired(b, at, b.at(at, _VECTOR // 2)) for at in places]
        for row, totals in zip(rows, sums, strict=True):
            query = b.splat(b.load(WORD, b.ir.add(row, b.times(pair, 4)), 4))
            for key, total in zip(loaded, totals, strict=True):
                b.ir.store(_dot(b, b.ir.load(total), query, key), total)
    for number, totals in enumerate(sums):
        for part, total in enumerate(totals):
            b.store(b.ir.load(total), b.at(b.ir.add(scores, b.times(stride, number)), _VECTOR * part), 4)


@intrinsic
def _soften(typingctx, count, scores, num_vectors, probabilities, states):
    """Turn scores of `count` queries, in powers of two, into probabilities relative to the largest score so far.

    Updates the states. Scores of -inf have a probability of zero. Queries are SPAN scores and probabilities apart.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        count, *of_loop = arguments
        build_for_each_count(b, count, lambda number: _build_soften(b, number, *of_loop))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), generate


def _build_soften(b: VectorBuilder, count: int, scores: Any, num_vectors: Any, probabilities: Any, states: Any) -> None:
    before = [b.load(FLOAT, b.at(states, _STATE * query), 4) for query in range(count)]
    tops = [cgutils.alloca_once_value(b.ir, b.splat(value)) for value in before]
    totals = [cgutils.alloca_once_value(b.ir, constant(0.0)) for _ in range(count)]
    with b.loop(num_vectors) as number:
        for query, top in enumerate(tops):
            value, held = b.load(FLOATS, _vector_of(b, scores, query, number), 4), b.ir.load(top)
            b.ir.store(b.ir.select(b.ir.fcmp_ordered(">", held, value), held, value), top)
    largest = [b.call("llvm.vector.reduce.fmax.v16f32", FLOAT, b.ir.load(top)) for top in tops]
    subtracted = [b.splat(value) for value in largest]
    with b.loop(num_vectors) as number:
        for query, total in enumerate(totals):
            value = b.load(FLOATS, _vector_of(b, scores, query, number), 4)
            power = _power_of_two(b, b.ir.fsub(value, subtracted[query]))
            half_at = b.at(b.ir.add(probabilities, b.times(number, 2 * LANES)), 2 * SPAN * query)
            b.store(_narrowed(b, power), half_at, 2)
            b.ir.store(b.ir.fadd(b.ir.load(total), power), total)
    for query, total in enumerate(totals):
        factors = _power_of_two(b, b.splat(b.ir.fsub(before[query], largest[query])))
        factor = b.ir.extract_element(factors, ir.Constant(WORD, 0))
        state = b.at(states, _STATE * query)
        carried = b.ir.fmul(b.load(FLOAT, b.at(state, 4), 4), factor)
        written = (largest[query], b.ir.fadd(carried, sum_lanes(b.ir, b.ir.load(total))), factor)
        for part, number in enumerate(written):
            b.store(number, b.at(state, 4 * part), 4)


def _vector_of(b: VectorBuilder, scores: Any, query: int, number: Any) -> Any:
    """Return the address of vector `number` of a query's scores."""
    return b.at(b.ir.add(scores, b.times(number, _VECTOR)), 4 * SPAN * query)


def _make_sum(is_opened: bool) -> Callable[..., None]:
    """Make the summation of opened values, or of a block as it lies in the cache."""

    @intrinsic
    def sum_values(typingctx, count, probabilities, stride, values, pair_bytes, num_pairs, out, out_bytes):
        """Compute out[0..64] += sum over pairs of positions of probability * value for `count` queries."""

        def generate(context, builder, signature, arguments):
            b = VectorBuilder(builder)
            count, *of_loop = arguments
            build_for_each_count(b, count, lambda number: _build_sum(b, number, is_opened, *of_loop))
            return context.get_dummy_value()

        return types.none(*[types.int64] * 8), generate

    return sum_values


def _build_sum(
    b: VectorBuilder,
    count: int,
    is_opened: bool,
    probabilities: Any,
    stride: Any,
    values: Any,
    pair_bytes: Any,
    num_pairs: Any,
    out: Any,
    out_bytes: Any,
) -> None:
    parts = range(HEAD_STEP // LANES)
    firsts = [b.ir.add(probabilities, b.times(stride, number)) for number in range(count)]
    rows = [b.ir.add(out, b.times(out_bytes, number)) for number in range(count)]
    targets = [[b.at(row, _VECTOR * part) for part in parts] for row in rows]
    sums = [[cgutils.alloca_once_value(b.ir, b.load(FLOATS, target, 4)) for target in of_query] for of_query in targets]
    row_bytes = b.ir.lshr(pair_bytes, ir.Constant(b.integer, 1))
    with b.loop(num_pairs) as pair:
        row = b.ir.add(values, b.ir.mul(pair, pair_bytes))
        if is_opened:
            loaded = [b.load(WORDS, b.at(row, _VECTOR * part), 4) for part in parts]
        else:
            firsts_of_pair = [b.at(row, _VECTOR // 2 * part) for part in parts]
            loaded = [_paired(b, first, b.ir.add(first, row_bytes)) for first in firsts_of_pair]
        for first, totals in zip(firsts, sums, strict=True):
            weight = b.splat(b.load(WORD, b.ir.add(first, b.times(pair, 4)), 4))
            for part, total in zip(loaded, totals, strict=True):
                b.ir.store(_dot(b, b.ir.load(total), weight, part), total)
    for of_query, totals in zip(targets, sums, strict=True):
        for target, total in zip(of_query, totals, strict=True):
            b.store(b.ir.load(total), target, 4)


_score_opened, _score_block = _make_score(True), _make_score(False)
_sum_opened, _sum_block = _make_sum(True), _make_sum(False)


def _paired(b: VectorBuilder, first: Any, second: Any) -> Any:
    """Load 16 bfloat16 from each of two addresses and put them into the halves of 16 lanes."""
    low, high = (b.ir.zext(b.load(_HALVES, address, 2), WORDS) for address in (first, second))
    return b.ir.or_(low, b.ir.shl(high, ir.Constant(WORDS, [16] * LANES)))


def _dot(b: VectorBuilder, sums: Any, x: Any, y: Any) -> Any:
    """Add to each of 16 sums the products of two pairs of bfloat16."""
    return b.call("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, sums, x, y)


def _narrowed(b: VectorBuilder, values: Any) -> Any:
    """Round 16 floats to bfloat16, to nearest even."""
    return b.call("llvm.x86.avx512bf16.cvtneps2bf16.512", _HALVES, values)


def _power_of_two(b: VectorBuilder, x: Any) -> Any:
    """Compute 2^x for x <= 0 with a relative error below 3e-6; less than 2^-126 from -126.5 on. NaN stays.

    2^x is 2^n times a polynomial of what remains.
    """
    low = constant(-127.0)
    x = b.ir.select(b.ir.fcmp_ordered("<", x, low), low, x)
    n = b.call("llvm.rint.v16f32", FLOATS, x)
    r = b.ir.fsub(x, n)
    p = constant(POWERS[0])
    for coefficient in POWERS[1:]:
        p = b.fused(p, r, constant(coefficient))
    arguments = (p, n, p, ir.Constant(ir.IntType(16), -1), ir.Constant(WORD, NEAREST))
    return b.call("llvm.x86.avx512.mask.scalef.ps.512", FLOATS, *arguments)


@njit(inline="always")
def _load_queries(a, tile_tokens, head, size, queries, states, work):
    """Write the scaled queries of a tile, heads of a token one after another, and their first states.

    work: `size` floats and a number
    """
    group, given_size = a[2] // a[3], a[4]
    has_sinks = a[26] != 0
    padded = floats(work, size + 1)
    padded[size] = floats(a[20], 1)[0] * np.float32(1.0 if floats(a[20], 2)[1] > 0.0 else LOG2_E)
    for i in range(given_size, size):
        padded[i] = np.float32(0.0)
    state = floats(states, len(tile_tokens) * group * 3)
    for number in range(len(tile_tokens) * group):
        member = head * group + number % group
        given = floats(a[13] + (tile_tokens[number // group] * a[23] + member * given_size) * 4, given_size)
        for i in range(given_size):
            padded[i] = given[i]
        for i in range(0, size, LANES):
            _narrow_vector(work + i * 4, work + size * 4, queries + (number * size + i) * 2)
        sink = floats(a[26], member + 1)[member] * np.float32(LOG2_E) if has_sinks else np.float32(LEAST)
        state[3 * number] = sink
        state[3 * number + 1] = np.float32(1.0 if has_sinks else 0.0)


@njit(inline="always")
def _prefetch_next(a, blocks, block, last, head, count):
    """Prefetch the keys and values of the block behind one, if it is among the first `last`."""
    if block + 1 < last:
        base = blocks[block + 1] * a[28] + head * count
        prefetch_block(a[10], True, base, count)
        prefetch_block(a[11], True, base, count)


@njit(inline="always")
def _open_keys(a, head, blocks, first, last, size, keys):
    """Open the keys of blocks `first` to `last`."""
    count = size * LANES
    for block in range(first, last):
        _prefetch_next(a, blocks, block, last, head, count)
        _pair_keys(a[10] + (blocks[block] * a[28] + head * count) * 2, keys + (block - first) * count * 2, size // 2)


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
            found |= _pair_values(even, odd, opened, size // LANES)
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
def _cap(score, count, softcap):
    """Turn scores into LOG2_E * softcap * tanh(score / softcap)."""
    factor, most = np.float32(2.0) / softcap, np.float32(LOG2_E) * softcap
    for i in range(count):
        score[i] = most - np.float32(2.0) * most / (exp(score[i] * factor) + np.float32(1.0))


@njit(inline="always")
def _weigh(seen, num_vectors, softcap, scores, probabilities, states):
    """Turn the scores of a span into probabilities. seen: of each query, the positions it sees, from and to."""
    for i in range(len(seen)):
        score = floats(scores + i * SPAN * 4, SPAN)
        if softcap > 0.0:
            _cap(score, num_vectors * LANES, softcap)
        _hide(score, seen[i, 0], seen[i, 1], num_vectors * LANES)
    _soften(len(seen), scores, num_vectors, probabilities, states)


@njit(inline="always")
def _scale(out, states, taken, size):
    """Multiply what the queries have summed by the factors of their states."""
    for i in range(taken):
        factor = floats(states + i * _STATE, 3)[2]
        if factor != np.float32(1.0):
            total = floats(out + i * size * 4, size)
            for j in range(size):
                total[j] *= factor


@njit(inline="always")
def _sum_span(taken, weights, num_pairs, size, values, out):
    """Add opened values, of `num_pairs` pairs of positions."""
    for d in range(0, size, HEAD_STEP):
        _sum_opened(taken, weights, SPAN * 2, values + d * 4, size * 4, num_pairs, out + d * 4, size * 4)


@njit(inline="always")
def _sum_alone(a, head, blocks, first, num_vectors, taken, size, seen, probabilities, values, out, work):
    """Add the values of a span's blocks, `first` its first one, for queries that see the same positions."""
    for i in range(num_vectors):
        weights = probabilities + i * LANES * 2
        if seen[0] <= i * LANES and (i + 1) * LANES <= seen[1]:
            at = a[11] + (blocks[first + i] * a[28] + head * size * LANES) * 2
            for d in range(0, size, HEAD_STEP):
                _sum_block(taken, weights, SPAN * 2, at + d * 2, size * 4, LANES // 2, out + d * 4, size * 4)
        elif seen[0] < (i + 1) * LANES:
            begin, end = first * LANES + seen[0], first * LANES + seen[1]
            _open_values(a, head, blocks, first + i, first + i + 1, begin, end, size, values, work)
            _sum_span(taken, weights, LANES // 2, size, values, out)


@njit(inline="always")
def _store_sums(a, tile_tokens, head, size, sums, states):
    """Divide the sums of a tile's queries by those of their probabilities, and write them to the result."""
    group, given_size = a[2] // a[3], a[4]
    is_half = a[19] != 0
    for number in range(len(tile_tokens) * group):
        share = np.float32(1.0) / floats(states + number * _STATE, 2)[1]
        result = floats(sums + number * size * 4, given_size)
        for i in range(given_size):
            result[i] *= share
        row = tile_tokens[number // group] * a[2] + head * group + number % group
        store_row(a[18], is_half, row, given_size, result)


@njit(cache=True, **EXACT)
def attend(a, thread, part, parts):
    """Attend the rows, whose keys and values are already stored. a: as for `attention.attend`; the cache is half."""
    group, kv_heads, size, window = a[2] // a[3], a[3], a[27], a[25]
    num_tiles = integers(a[1], 1)[0]
    ends = integers(a[1] + 8, num_tiles + 1)
    tokens, all_contexts = integers(a[14], ends[num_tiles]), integers(a[15], ends[num_tiles])
    softcap = floats(a[20], 2)[1]
    row_bytes, block_bytes = size * 2, size * LANES * 2
    keys = a[21] + thread * a[22] * 4
    values = keys + SPAN * row_bytes
    scores = values + SPAN * row_bytes
    probabilities = scores + MOST_AT_ONCE * SPAN * 4
    sums = probabilities + MOST_AT_ONCE * SPAN * 2
    queries = sums + a[24] * size * 4
    states = queries + a[24] * row_bytes
    work = states + a[24] * _STATE
    seen = np.empty((MOST_AT_ONCE, 2), np.int64)
    for task in range(part, num_tiles * kv_heads, parts):
        tile, head = task // kv_heads, task % kv_heads
        tile_tokens, contexts = tokens[ends[tile] : ends[tile + 1]], all_contexts[ends[tile] : ends[tile + 1]]
        num_queries = len(contexts) * group
        is_alone = len(contexts) == 1 and group <= MOST_AT_ONCE
        shortest, longest = contexts[0], contexts[-1]
        num_blocks = (longest + LANES - 1) // LANES
        blocks = integers(a[16] + tile * a[17] * 8, num_blocks)
        _load_queries(a, tile_tokens, head, size, queries, states, work)
        total = floats(sums, num_queries * size)
        for i in range(num_queries * size):
            total[i] = np.float32(0.0)
        for first in range(max(0, shortest - window) // SPAN * SPAN if window > 0 else 0, longest, SPAN):
            begin = first // LANES
            end = min(num_blocks, begin + SPAN_BLOCKS)
            is_finite = True
            if not is_alone:
                _open_keys(a, head, blocks, begin, end, size, keys)
                is_finite = _open_values(a, head, blocks, begin, end, 0, longest, size, values, work)
            number = 0
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
                query, state, out = queries + number * row_bytes, states + number * _STATE, sums + number * size * 4
                number += taken
                if not is_seen:
                    continue
                if is_alone:
                    for i in range(num_vectors):
                        _prefetch_next(a, blocks, begin + i, num_blocks, head, size * LANES)
                        at = a[10] + (blocks[begin + i] * a[28] + head * size * LANES) * 2
                        _score_block(taken, query, row_bytes, at, 0, size // 2, scores + i * _VECTOR, SPAN * 4)
                else:
                    for i in range(0, num_vectors, BLOCKS_AT_ONCE):
                        at, target = keys + i * block_bytes, scores + i * _VECTOR
                        _score_opened(taken, query, row_bytes, at, block_bytes, size // 2, target, SPAN * 4)
                _weigh(seen[:taken], num_vectors, softcap, scores, probabilities, state)
                _scale(out, state, taken, size)
                if is_alone:
                    _sum_alone(
                        a, head, blocks, begin, num_vectors, taken, size, seen[0], probabilities, values, out, work
                    )
                elif is_finite:
                    _sum_span(taken, probabilities, num_vectors * LANES // 2, size, values, out)
                else:
                    for i in range(taken):
                        _open_values(
                            a, head, blocks, begin, end, first + seen[i, 0], first + seen[i, 1], size, values, work
                        )
                        weights, target = probabilities + i * SPAN * 2, out + i * size * 4
                        _sum_span(1, weights, num_vectors * LANES // 2, size, values, target)
        _store_sums(a, tile_tokens, head, size, sums, states)
