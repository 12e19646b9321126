"""The inner loops of flash attention: vectors of sixteen positions or numbers, multiplied in pairs of bfloat16.

Keys and values come opened, two adjacent numbers of a key or of two positions' values in one lane, or as they lie in
the cache. A query's additions have one order, whatever is computed beside it. Addresses are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.integer_vectors import BFLOATS, FLOAT, FLOATS, LANES, PAIRS, WORD, WORDS, VectorBuilder
from engine.kernels.cpu.vectors import HEAD_STEP, QUERIES_AT_ONCE, build_for_each_count, constant, sum_lanes

SPAN = 256
"""Positions that are scored before their values are summed: both stay in the nearest caches."""
BLOCKS_AT_ONCE = 4
"""Blocks of positions that are scored at once: with six queries, 24 sums in 32 registers."""
SPAN_BLOCKS = SPAN // LANES
MOST_AT_ONCE = QUERIES_AT_ONCE[0]
VECTOR_BYTES = 4 * LANES
STATE_BYTES = 4 * 3
"""Of a query: the largest score so far, the sum of probabilities, the factor on what was summed before the last span.
"""
POWERS = (0.0770670387, 0.227644996, 0.695116785, 1.0)
"""Coefficients of 2^x on [0, 1], highest first: an error of 9e-5, a twentieth of what rounding to bfloat16 adds."""
NEAREST, DOWN = 4, 9
"""Rounding modes: of a result, as the processor is set; of what `vreduceps` takes away, the integer below."""


@intrinsic
def pair_keys(typingctx, keys, out, num_pairs):
    """Open a block of keys: (2 * num_pairs, 16) -> (num_pairs, 16, 2)."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        keys, out, num_pairs = arguments
        with b.loop(num_pairs) as pair:
            row = builder.add(keys, b.times(pair, 4 * LANES))
            b.store(_paired(b, row, b.at(row, 2 * LANES)), builder.add(out, b.times(pair, VECTOR_BYTES)), 4)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 3), generate


@intrinsic
def pair_values(typingctx, first, second, out, num_vectors):
    """Open two positions' values: two rows of 16 * num_vectors -> (num_vectors, 16, 2). Return 0 if all are finite."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        first, second, out, num_vectors = arguments
        found = cgutils.alloca_once_value(builder, ir.Constant(WORD, 0))
        exponent = ir.Constant(PAIRS, [0x7F80] * (2 * LANES))
        with b.loop(num_vectors) as number:
            offset = b.times(number, 2 * LANES)
            pair = _paired(b, builder.add(first, offset), builder.add(second, offset))
            b.store(pair, builder.add(out, b.times(number, VECTOR_BYTES)), 4)
            is_broken = builder.icmp_unsigned("==", builder.and_(builder.bitcast(pair, PAIRS), exponent), exponent)
            builder.store(builder.or_(builder.load(found), builder.bitcast(is_broken, WORD)), found)
        return builder.zext(builder.load(found), b.integer)

    return types.int64(*[types.int64] * 4), generate


@intrinsic
def narrow_vector(typingctx, source, scale, out):
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
        places = [b.ir.add(block, b.times(pair, VECTOR_BYTES)) for block in blocks]
        loaded = [b.load(WORDS, at, 4) if is_opened else _paired(b, at, b.at(at, VECTOR_BYTES // 2)) for at in places]
        for row, totals in zip(rows, sums, strict=True):
            query = b.splat(b.load(WORD, b.ir.add(row, b.times(pair, 4)), 4))
            for key, total in zip(loaded, totals, strict=True):
                b.ir.store(b.dot_pairs(b.ir.load(total), query, key), total)
    for number, totals in enumerate(sums):
        for part, total in enumerate(totals):
            b.store(b.ir.load(total), b.at(b.ir.add(scores, b.times(stride, number)), VECTOR_BYTES * part), 4)


@intrinsic
def raise_tops(typingctx, count, scores, num_vectors, states):
    """Update the largest scores of `count` queries, the factors, and by them the sums of probabilities.

    Queries are SPAN scores apart.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        count, *of_loop = arguments
        build_for_each_count(b, count, lambda number: _build_raise_tops(b, number, *of_loop))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4), generate


def _build_raise_tops(b: VectorBuilder, count: int, scores: Any, num_vectors: Any, states: Any) -> None:
    before = [b.load(FLOAT, b.at(states, STATE_BYTES * query), 4) for query in range(count)]
    tops = [cgutils.alloca_once_value(b.ir, b.splat(value)) for value in before]
    with b.loop(num_vectors) as number:
        for query, top in enumerate(tops):
            value = b.load(FLOATS, _vector_of(b, scores, query, number), 4)
            b.ir.store(_larger(b, b.ir.load(top), value), top)
    largest = [_lane(b, _largest(b, b.ir.load(top)), 0) for top in tops]
    changes = constant(0.0)
    for query, (old, new) in enumerate(zip(before, largest, strict=True)):
        changes = b.ir.insert_element(changes, b.ir.fsub(old, new), ir.Constant(WORD, query))
    factors = _power_of_two(b, changes)
    for query, top in enumerate(largest):
        state = b.at(states, STATE_BYTES * query)
        factor = _lane(b, factors, query)
        carried = b.ir.fmul(b.load(FLOAT, b.at(state, 4), 4), factor)
        for part, number in enumerate((top, carried, factor)):
            b.store(number, b.at(state, 4 * part), 4)


@intrinsic
def soften(typingctx, count, scores, num_vectors, probabilities, states):
    """Turn scores of `count` queries, in powers of two, into probabilities relative to the largest score so far.

    Adds them to the sums. Scores of -inf have a probability of zero. Queries are SPAN scores and probabilities apart.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        count, *of_loop = arguments
        build_for_each_count(b, count, lambda number: _build_soften(b, number, *of_loop))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), generate


def _build_soften(b: VectorBuilder, count: int, scores: Any, num_vectors: Any, probabilities: Any, states: Any) -> None:
    tops = [b.splat_float(b.at(states, STATE_BYTES * query)) for query in range(count)]
    totals = [cgutils.alloca_once_value(b.ir, constant(0.0)) for _ in range(count)]
    with b.loop(num_vectors) as number:
        for query, total in enumerate(totals):
            value = b.load(FLOATS, _vector_of(b, scores, query, number), 4)
            power = _power_of_two(b, b.ir.fsub(value, tops[query]))
            half_at = b.at(b.ir.add(probabilities, b.times(number, 2 * LANES)), 2 * SPAN * query)
            b.store(_narrowed(b, power), half_at, 2)
            b.ir.store(b.ir.fadd(b.ir.load(total), power), total)
    for query, total in enumerate(totals):
        _add_total(b, b.ir.load(total), b.at(states, STATE_BYTES * query))


@intrinsic
def merge_states(typingctx, count, totals, pieces):
    """Merge the states of `count` queries in a piece into those before it; both get the factors on what they summed."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        count, *states = arguments
        build_for_each_count(b, count, lambda number: _build_merge_states(b, number, *states))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 3), generate


def _build_merge_states(b: VectorBuilder, count: int, totals: Any, pieces: Any) -> None:
    states = [[b.at(states, STATE_BYTES * query) for states in (totals, pieces)] for query in range(count)]
    changes, tops = constant(0.0), []
    for query, both in enumerate(states):
        of_both = [b.load(FLOAT, state, 4) for state in both]
        tops.append(_larger(b, *of_both))
        for part, one in enumerate(of_both):
            changes = b.ir.insert_element(changes, b.ir.fsub(one, tops[-1]), ir.Constant(WORD, 2 * query + part))
    powers = _power_of_two(b, changes)
    for query, (both, top) in enumerate(zip(states, tops, strict=True)):
        factors = [_lane(b, powers, 2 * query + part) for part in range(2)]
        carried, added = (
            b.ir.fmul(b.load(FLOAT, b.at(state, 4), 4), factor) for state, factor in zip(both, factors, strict=True)
        )
        b.store(top, both[0], 4)
        b.store(b.ir.fadd(carried, added), b.at(both[0], 4), 4)
        for state, factor in zip(both, factors, strict=True):
            b.store(factor, b.at(state, 8), 4)


@intrinsic
def merge_sums(typingctx, total, state, piece, piece_state, num_vectors):
    """Add a piece's sums to those before it, each times the factor of its state."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        total, state, piece, piece_state, num_vectors = arguments
        factor, piece_factor = (b.splat_float(b.at(one, 8)) for one in (state, piece_state))
        with b.loop(num_vectors) as number:
            offset = b.times(number, VECTOR_BYTES)
            at = builder.add(total, offset)
            added = builder.fmul(b.load(FLOATS, builder.add(piece, offset), 4), piece_factor)
            b.store(b.fused(b.load(FLOATS, at, 4), factor, added), at, 4)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), generate


def _add_total(b: VectorBuilder, total: Any, state: Any) -> None:
    """Add 16 lanes of probabilities to the sum in a state."""
    at = b.at(state, 4)
    b.store(b.ir.fadd(b.load(FLOAT, at, 4), sum_lanes(b.ir, total)), at, 4)


@intrinsic
def score_and_soften(typingctx, queries, query_bytes, keys, num_pairs, scores, earlier, probabilities, states):
    """Score a span of opened keys for MOST_AT_ONCE queries, as `score_opened`, and soften `earlier` scores of as many.

    Products and additions run beside each other in the processor. `states` and `probabilities` are those of `earlier`.
    `num_pairs` is a multiple of 32.
    """

    def generate(context, builder, signature, arguments):
        _build_score_and_soften(VectorBuilder(builder), *arguments)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 8), generate


SEGMENTS = 8
"""Parts of the pairs of a head. With each, half of the queries have one of BLOCKS_AT_ONCE = 4 vectors softened."""
SEGMENT_PAIRS = 4
"""Pairs that have additions beside them; those of larger heads that remain in a segment have none."""


def _build_score_and_soften(
    b: VectorBuilder,
    queries: Any,
    query_bytes: Any,
    keys: Any,
    num_pairs: Any,
    scores: Any,
    earlier: Any,
    probabilities: Any,
    states: Any,
) -> None:
    builder = b.ir
    places = [(query, block) for query in range(MOST_AT_ONCE) for block in range(BLOCKS_AT_ONCE)]
    sums = {place: cgutils.alloca_once(builder, FLOATS) for place in places}
    totals = cgutils.alloca_once(builder, FLOATS, size=MOST_AT_ONCE)
    totals_at = builder.ptrtoint(totals, b.integer)
    for query in range(MOST_AT_ONCE):
        b.store(constant(0.0), b.at(totals_at, VECTOR_BYTES * query), 4)
    rows = [builder.add(queries, b.times(query_bytes, query)) for query in range(MOST_AT_ONCE)]
    key_bytes = b.times(num_pairs, VECTOR_BYTES)
    segment_pairs = builder.lshr(num_pairs, ir.Constant(b.integer, 3))
    num_rest = builder.sub(segment_pairs, ir.Constant(b.integer, SEGMENT_PAIRS))

    def multiply(pair: Any, blocks: list[Any]) -> Iterator[None]:
        """Build the products of a pair, and pause after each."""
        loaded = [b.load(WORDS, builder.add(block, b.times(pair, VECTOR_BYTES)), 4) for block in blocks]
        for query, row in enumerate(rows):
            given = b.splat(b.load(WORD, builder.add(row, b.times(pair, 4)), 4))
            for block, key in enumerate(loaded):
                total = sums[query, block]
                builder.store(b.dot_pairs(builder.load(total), given, key), total)
                yield

    with b.loop(ir.Constant(b.integer, SPAN_BLOCKS), step=BLOCKS_AT_ONCE) as first:
        for total in sums.values():
            builder.store(constant(0.0), total)
        begin = builder.add(keys, builder.mul(key_bytes, first))
        blocks = [builder.add(begin, b.times(key_bytes, block)) for block in range(BLOCKS_AT_ONCE)]
        with b.loop(ir.Constant(b.integer, SEGMENTS)) as segment:
            half = builder.lshr(segment, ir.Constant(b.integer, 2))
            vector = builder.add(first, builder.and_(segment, ir.Constant(b.integer, 3)))
            query = b.times(half, MOST_AT_ONCE // 2)
            softened = []
            for more in range(MOST_AT_ONCE // 2):
                one = b.at(query, more)
                softened.append(
                    _soften_vector(
                        b,
                        builder.add(builder.add(earlier, b.times(one, 4 * SPAN)), b.times(vector, VECTOR_BYTES)),
                        builder.add(states, b.times(one, STATE_BYTES)),
                        builder.add(builder.add(probabilities, b.times(one, 2 * SPAN)), b.times(vector, 2 * LANES)),
                        builder.add(totals_at, b.times(one, VECTOR_BYTES)),
                    )
                )
            pair = builder.mul(segment_pairs, segment)
            products = chain.from_iterable(multiply(b.at(pair, more), blocks) for more in range(SEGMENT_PAIRS))
            additions = chain.from_iterable(softened)
            for _ in zip_longest(products, additions):
                pass
            with b.loop(num_rest) as more:
                for _ in multiply(builder.add(b.at(pair, SEGMENT_PAIRS), more), blocks):
                    pass
        for (query, block), total in sums.items():
            at = builder.add(scores, b.times(first, VECTOR_BYTES))
            b.store(builder.load(total), b.at(at, 4 * SPAN * query + VECTOR_BYTES * block), 4)
    for query in range(MOST_AT_ONCE):
        total = b.load(FLOATS, b.at(totals_at, VECTOR_BYTES * query), 4)
        _add_total(b, total, b.at(states, STATE_BYTES * query))


def _soften_vector(b: VectorBuilder, score: Any, state: Any, probability: Any, total: Any) -> Iterator[None]:
    """Build what softens 16 scores, and pause after each operation."""
    x = b.ir.fsub(b.load(FLOATS, score, 4), b.splat_float(state))
    yield
    power = x
    for result in _power_steps(b, x):
        power = result
        yield
    b.store(_narrowed(b, power), probability, 2)
    yield
    b.store(b.ir.fadd(b.load(FLOATS, total, 4), power), total, 4)
    yield


def _larger(b: VectorBuilder, one: Any, other: Any) -> Any:
    return b.ir.select(b.ir.fcmp_ordered(">", one, other), one, other)


def _largest(b: VectorBuilder, vector: Any) -> Any:
    """Return the largest of 16 lanes in every lane. `llvm.vector.reduce.fmax` takes 15 steps, one after another."""
    for distance in (8, 4, 2, 1):
        lanes = ir.Constant(WORDS, [(lane + distance) % LANES for lane in range(LANES)])
        vector = _larger(b, vector, b.ir.shuffle_vector(vector, vector, lanes))
    return vector


def _lane(b: VectorBuilder, vector: Any, number: int) -> Any:
    return b.ir.extract_element(vector, ir.Constant(WORD, number))


def _vector_of(b: VectorBuilder, scores: Any, query: int, number: Any) -> Any:
    """Return the address of vector `number` of a query's scores."""
    return b.at(b.ir.add(scores, b.times(number, VECTOR_BYTES)), 4 * SPAN * query)


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
    targets = [[b.at(row, VECTOR_BYTES * part) for part in parts] for row in rows]
    sums = [[cgutils.alloca_once_value(b.ir, b.load(FLOATS, target, 4)) for target in of_query] for of_query in targets]
    row_bytes = b.ir.lshr(pair_bytes, ir.Constant(b.integer, 1))
    with b.loop(num_pairs) as pair:
        row = b.ir.add(values, b.ir.mul(pair, pair_bytes))
        if is_opened:
            loaded = [b.load(WORDS, b.at(row, VECTOR_BYTES * part), 4) for part in parts]
        else:
            firsts_of_pair = [b.at(row, VECTOR_BYTES // 2 * part) for part in parts]
            loaded = [_paired(b, first, b.ir.add(first, row_bytes)) for first in firsts_of_pair]
        for first, totals in zip(firsts, sums, strict=True):
            weight = b.splat(b.load(WORD, b.ir.add(first, b.times(pair, 4)), 4))
            for part, total in zip(loaded, totals, strict=True):
                b.ir.store(b.dot_pairs(b.ir.load(total), weight, part), total)
    for of_query, totals in zip(targets, sums, strict=True):
        for target, total in zip(of_query, totals, strict=True):
            b.store(b.ir.load(total), target, 4)


score_opened, score_cached = _make_score(True), _make_score(False)
sum_opened, sum_cached = _make_sum(True), _make_sum(False)


def _paired(b: VectorBuilder, first: Any, second: Any) -> Any:
    """Load 16 bfloat16 from each of two addresses and put them into the halves of 16 lanes."""
    low, high = (b.ir.zext(b.load(BFLOATS, address, 2), WORDS) for address in (first, second))
    return b.ir.or_(low, b.ir.shl(high, ir.Constant(WORDS, [16] * LANES)))


def _narrowed(b: VectorBuilder, values: Any) -> Any:
    """Round 16 floats to bfloat16, to nearest even."""
    return b.call("llvm.x86.avx512bf16.cvtneps2bf16.512", BFLOATS, values)


def _power_of_two(b: VectorBuilder, x: Any) -> Any:
    """Compute 2^x for x <= 0 with a relative error below 1e-4 down to -126; -inf gives zero, NaN stays."""
    *_, power = _power_steps(b, x)
    return power


def _power_steps(b: VectorBuilder, x: Any) -> Iterator[Any]:
    """Build 2^x operation by operation; the last is the result.

    2^x is 2^n, n the integer below x, times a polynomial of what remains.
    """
    every = ir.Constant(ir.IntType(16), -1)
    nearest = ir.Constant(WORD, NEAREST)
    r = b.call("llvm.x86.avx512.mask.reduce.ps.512", FLOATS, x, ir.Constant(WORD, DOWN), x, every, nearest)
    yield r
    p = constant(POWERS[0])
    for coefficient in POWERS[1:]:
        p = b.fused(p, r, constant(coefficient))
        yield p
    yield b.call("llvm.x86.avx512.mask.scalef.ps.512", FLOATS, p, x, p, every, nearest)
