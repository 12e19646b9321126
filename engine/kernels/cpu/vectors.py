"""The inner loops of attention, for blocks of sixteen positions, and of the gate, as explicit vectors of sixteen
floats.

The compiler does not vectorise these loops, as it cannot know that scores, keys and values do not overlap. Sums stay in
registers; bfloat16 is widened as it is read, once for up to six queries. A query's additions have one order and one
rounding, whatever is computed beside it: fused multiply-adds are explicit, as the compiler would fuse only some. LLVM
splits the vectors on processors with shorter ones. Addresses are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.primitives import floats

LANES = 16
HEAD_STEP = 64
"""Floats of a value row that are summed at once, in four vectors."""
QUERIES_AT_ONCE = (6, 4, 3, 2, 1)
"""Six queries have 24 sums, in 32 registers."""
EXACT = {"fastmath": False, "error_model": "numpy"}
"""Explicit, because a function inherits its caller's permission to reorder additions, and each caller would use it
differently."""
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)


def _load(builder: Any, address: Any, is_half: bool) -> Any:
    """Load sixteen floats, or sixteen bfloat16 widened, from an address."""
    if not is_half:
        return builder.load(builder.inttoptr(address, _FLOATS.as_pointer()), align=4)
    halves = builder.load(builder.inttoptr(address, _HALVES.as_pointer()), align=2)
    shift = ir.Constant(_WORDS, [16] * LANES)
    return builder.bitcast(builder.shl(builder.zext(halves, _WORDS), shift), _FLOATS)


def _splat(builder: Any, address: Any) -> Any:
    """Load the float at an address into every lane."""
    return _splat_value(builder, builder.load(builder.inttoptr(address, ir.FloatType().as_pointer()), align=4))


def _splat_value(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_WORDS, [0] * LANES))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c, rounded once."""
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), "llvm.fma.v16f32"
    )
    return builder.call(function, (a, b, c))


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, _FLOATS.as_pointer()), align=4)


@intrinsic
def _weigh_keys(typingctx, count, is_half, queries, keys, scores, stride, size):
    """Compute scores[p] = sum over d of query[d] * keys[d, p] for `count` queries, whose scores are `stride` bytes
    apart.

    `size` is a multiple of four. Each query has four sums, so that additions overlap.
    """

    def generate(context, builder, signature, arguments):
        _for_each_count(builder, arguments, _build_weigh_keys)
        return context.get_dummy_value()

    return types.none(types.int64, types.boolean, *[types.int64] * 5), generate


@intrinsic
def _weigh_values(typingctx, count, is_half, scores, stride, values, row_bytes, num_positions, out, out_bytes):
    """Compute out[0..64] += sum over positions of scores[p] * values[p, 0..64] for `count` queries.

    Rows of values are `row_bytes` apart; scores of the queries `stride` bytes, their results `out_bytes`.
    """

    def generate(context, builder, signature, arguments):
        _for_each_count(builder, arguments, _build_weigh_values)
        return context.get_dummy_value()

    return types.none(types.int64, types.boolean, *[types.int64] * 7), generate


def _for_each_count(builder: Any, arguments: list[Any], build: Callable[..., None]) -> None:
    """Build a loop for each number of queries and each type of keys or values, and branch to that of the arguments."""
    count, is_half, *of_loop = arguments
    with builder.if_else(is_half) as branches:
        for branch, half in zip(branches, (True, False), strict=True):
            with branch:
                for number in QUERIES_AT_ONCE:
                    with builder.if_then(builder.icmp_signed("==", count, ir.Constant(count.type, number))):
                        build(builder, number, half, *of_loop)


def _build_weigh_keys(
    builder: Any, count: int, is_half: bool, queries: Any, keys: Any, scores: Any, stride: Any, size: Any
) -> None:
    integer = size.type
    row_bytes = LANES * (2 if is_half else 4)
    sums = [[cgutils.alloca_once_value(builder, _constant(0.0)) for _ in range(4)] for _ in range(count)]
    query_bytes = builder.mul(size, ir.Constant(integer, 4))
    firsts = [builder.add(queries, builder.mul(query_bytes, ir.Constant(integer, number))) for number in range(count)]
    start, step = ir.Constant(integer, 0), ir.Constant(integer, 4)
    with cgutils.for_range_slice(builder, start, size, step, integer) as (d, _):
        for j in range(4):
            here = builder.add(d, ir.Constant(integer, j))
            row = _load(builder, builder.add(keys, builder.mul(here, ir.Constant(integer, row_bytes))), is_half)
            for first, totals in zip(firsts, sums, strict=True):
                weight = _splat(builder, builder.add(first, builder.mul(here, ir.Constant(integer, 4))))
                builder.store(_fma(builder, weight, row, builder.load(totals[j])), totals[j])
    for number, totals in enumerate(sums):
        a, b, c, e = (builder.load(total) for total in totals)
        place = builder.add(scores, builder.mul(stride, ir.Constant(integer, number)))
        _store(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, e)), place)


def _build_weigh_values(
    builder: Any,
    count: int,
    is_half: bool,
    scores: Any,
    stride: Any,
    values: Any,
    row_bytes: Any,
    num_positions: Any,
    out: Any,
    out_bytes: Any,
) -> None:
    integer = num_positions.type
    parts = range(HEAD_STEP // LANES)
    vector_bytes = LANES * (2 if is_half else 4)

    def times(size: Any, number: int) -> Any:
        return builder.mul(size, ir.Constant(integer, number))

    firsts = [builder.add(scores, times(stride, number)) for number in range(count)]
    targets = [
        [
            builder.add(builder.add(out, times(out_bytes, number)), ir.Constant(integer, 4 * LANES * part))
            for part in parts
        ]
        for number in range(count)
    ]
    sums = [
        [cgutils.alloca_once_value(builder, _load(builder, target, False)) for target in of_query]
        for of_query in targets
    ]
    start, step = ir.Constant(integer, 0), ir.Constant(integer, 1)
    with cgutils.for_range_slice(builder, start, num_positions, step, integer) as (p, _):
        row = builder.add(values, builder.mul(p, row_bytes))
        loaded = [
            _load(builder, builder.add(row, ir.Constant(integer, vector_bytes * part)), is_half) for part in parts
        ]
        for first, totals in zip(firsts, sums, strict=True):
            weight = _splat(builder, builder.add(first, times(p, 4)))
            for part, total in zip(loaded, totals, strict=True):
                builder.store(_fma(builder, weight, part, builder.load(total)), total)
    for of_query, totals in zip(targets, sums, strict=True):
        for target, total in zip(of_query, totals, strict=True):
            _store(builder, builder.load(total), target)


@intrinsic
def _soften(typingctx, scores, num_vectors):
    """Turn `num_vectors` vectors of scores into probabilities: exp(score - largest) over the sum of these."""

    def generate(context, builder, signature, arguments):
        scores, num_vectors = arguments
        integer = num_vectors.type
        zero, one = ir.Constant(integer, 0), ir.Constant(integer, 1)

        def each(act: Callable[[Any, Any], None]) -> None:
            with cgutils.for_range_slice(builder, zero, num_vectors, one, integer) as (number, _):
                place = builder.add(scores, builder.mul(number, ir.Constant(integer, 4 * LANES)))
                act(place, _load(builder, place, False))

        def gather(place: Any, value: Any) -> None:
            held = builder.load(top)
            builder.store(builder.select(builder.fcmp_ordered(">", held, value), held, value), top)

        def raise_and_add(place: Any, value: Any) -> None:
            raised = _exp(builder, builder.fsub(value, largest))
            _store(builder, raised, place)
            builder.store(builder.fadd(builder.load(total), raised), total)

        top = cgutils.alloca_once_value(builder, _load(builder, scores, False))
        total = cgutils.alloca_once_value(builder, _constant(0.0))
        each(gather)
        largest = _splat_value(builder, _reduced(builder, "fmax", builder.load(top)))
        each(raise_and_add)
        whole = _reduced(builder, "fadd", builder.load(total), ir.Constant(ir.FloatType(), -0.0))
        factor = _splat_value(builder, builder.fdiv(ir.Constant(ir.FloatType(), 1.0), whole))
        each(lambda place, value: _store(builder, builder.fmul(value, factor), place))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


def _constant(number: float) -> Any:
    return ir.Constant(_FLOATS, [number] * LANES)


def _exp(builder: Any, x: Any) -> Any:
    """Compute e^x in each lane as primitives.exp, with fused operations.

    x is at most 88; values below -87 count as -87, NaN stays.
    """
    low = _constant(-87.0)
    x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
    floor = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_FLOATS, [_FLOATS]), "llvm.floor.v16f32")
    n = builder.call(floor, (_fma(builder, x, _constant(1.44269504), _constant(0.5)),))
    r = _fma(builder, n, _constant(-0.693359375), x)
    r = _fma(builder, n, _constant(2.12194440e-4), r)
    p = _constant(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(builder, p, r, _constant(coefficient))
    p = _fma(builder, builder.fmul(p, r), r, builder.fadd(r, _constant(1.0)))
    exponents = builder.add(builder.fptosi(n, _WORDS), ir.Constant(_WORDS, [127] * LANES))
    return builder.fmul(p, builder.bitcast(builder.shl(exponents, ir.Constant(_WORDS, [23] * LANES)), _FLOATS))


def _reduced(builder: Any, kind: str, vector: Any, *start: Any) -> Any:
    """Reduce all lanes to one float; sums add pairs (`reassoc`)."""
    types_of = [*(ir.FloatType() for _ in start), _FLOATS]
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.FloatType(), types_of), f"llvm.vector.reduce.{kind}.v16f32"
    )
    return builder.call(function, (*start, vector), fastmath=("reassoc",) if start else ())


@intrinsic
def gate_vectors(typingctx, gates, ups, out, num_vectors):
    """Compute out = gate / (1 + e^-gate) * up over `num_vectors` vectors of floats."""

    def generate(context, builder, signature, arguments):
        gates, ups, out, num_vectors = arguments
        integer = num_vectors.type
        zero, one = ir.Constant(integer, 0), ir.Constant(integer, 1)
        with cgutils.for_range_slice(builder, zero, num_vectors, one, integer) as (number, _):
            offset = builder.mul(number, ir.Constant(integer, 4 * LANES))
            gate = _load(builder, builder.add(gates, offset), False)
            raised = _exp(builder, _at_most(builder, builder.fneg(gate), 88.0))
            gated = builder.fdiv(gate, builder.fadd(raised, _constant(1.0)))
            _store(
                builder,
                builder.fmul(gated, _load(builder, builder.add(ups, offset), False)),
                builder.add(out, offset),
            )
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4), generate


def _at_most(builder: Any, x: Any, bound: float) -> Any:
    limit = _constant(bound)
    return builder.select(builder.fcmp_ordered(">", x, limit), limit, x)


@njit(**EXACT)
def softmax(scores, context):
    """Turn the first `context` scores into probabilities; the rest of the last vector is overwritten."""
    num_vectors = (context + LANES - 1) // LANES
    behind = floats(scores + context * 4, num_vectors * LANES - context)
    for i in range(len(behind)):
        behind[i] = -np.inf
    _soften(scores, num_vectors)


@njit(inline="always")
def _queries_at_once(left):
    """Return how many of the `left` queries are computed next."""
    if left == 6 or left > 7:
        return 6
    return min(left, 4)


@njit(**EXACT)
def score_block(queries, count, keys, is_half, scores, stride, size):
    """Score one block of keys, bfloat16 or float32, for `count` adjacent queries; their scores are `stride` bytes
    apart.
    """
    done = 0
    while done < count:
        taken = _queries_at_once(count - done)
        _weigh_keys(taken, is_half, queries + done * size * 4, keys, scores + done * stride, stride, size)
        done += taken


@njit(**EXACT)
def sum_block(scores, count, stride, values, is_half, row_bytes, num_positions, out, out_bytes):
    """Sum the values of one block's first positions, HEAD_STEP floats wide, for `count` queries."""
    done = 0
    while done < count:
        taken = _queries_at_once(count - done)
        at_scores, at_out = scores + done * stride, out + done * out_bytes
        _weigh_values(taken, is_half, at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
        done += taken
