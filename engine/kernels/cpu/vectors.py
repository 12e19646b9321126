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


def _make_weigh_keys(count: int, is_half: bool) -> Callable[..., None]:
    row_bytes = LANES * (2 if is_half else 4)

    @intrinsic
    def weigh_keys(typingctx, queries, keys, scores, stride, size):
        """Compute scores[p] = sum over d of query[d] * keys[d, p] for `count` queries, whose scores are `stride` bytes
        apart.

        `size` is a multiple of four. Each query has four sums, so that additions overlap.
        """

        def generate(context, builder, signature, arguments):
            queries, keys, scores, stride, size = arguments
            integer = size.type
            sums = [
                [cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, [0.0] * LANES)) for _ in range(4)]
                for _ in range(count)
            ]
            query_bytes = builder.mul(size, ir.Constant(integer, 4))
            firsts = [
                builder.add(queries, builder.mul(query_bytes, ir.Constant(integer, number))) for number in range(count)
            ]
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
            return context.get_dummy_value()

        return types.none(*[types.int64] * 5), generate

    return weigh_keys


def _make_weigh_values(count: int, is_half: bool) -> Callable[..., None]:
    width = 2 if is_half else 4

    @intrinsic
    def weigh_values(typingctx, scores, stride, values, row_bytes, num_positions, out, out_bytes):
        """Compute out[0..64] += sum over positions of scores[p] * values[p, 0..64] for `count` queries.

        Rows of values are `row_bytes` apart; scores of the queries `stride` bytes, their results `out_bytes`.
        """

        def generate(context, builder, signature, arguments):
            scores, stride, values, row_bytes, num_positions, out, out_bytes = arguments
            integer = num_positions.type

            def times(size, number):
                return builder.mul(size, ir.Constant(integer, number))

            parts = range(HEAD_STEP // LANES)
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
            with cgutils.for_range_slice(
                builder, ir.Constant(integer, 0), num_positions, ir.Constant(integer, 1), integer
            ) as (p, _):
                row = builder.add(values, builder.mul(p, row_bytes))
                loaded = [
                    _load(builder, builder.add(row, ir.Constant(integer, LANES * width * part)), is_half)
                    for part in parts
                ]
                for first, totals in zip(firsts, sums, strict=True):
                    weight = _splat(builder, builder.add(first, times(p, 4)))
                    for part, total in zip(loaded, totals, strict=True):
                        builder.store(_fma(builder, weight, part, builder.load(total)), total)
            for of_query, totals in zip(targets, sums, strict=True):
                for target, total in zip(of_query, totals, strict=True):
                    _store(builder, builder.load(total), target)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 7), generate

    return weigh_values


def _make_soften() -> Callable[..., None]:
    @intrinsic
    def soften(typingctx, scores, num_vectors):
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

    return soften


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


_soften = _make_soften()


def _make_gate() -> Callable[..., None]:
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

    return gate_vectors


def _at_most(builder: Any, x: Any, bound: float) -> Any:
    limit = _constant(bound)
    return builder.select(builder.fcmp_ordered(">", x, limit), limit, x)


gate_vectors = _make_gate()


_six_keys_half, _four_keys_half, _three_keys_half, _two_keys_half, _one_keys_half = (
    _make_weigh_keys(count, True) for count in QUERIES_AT_ONCE
)
_six_keys_float, _four_keys_float, _three_keys_float, _two_keys_float, _one_keys_float = (
    _make_weigh_keys(count, False) for count in QUERIES_AT_ONCE
)
_six_values_half, _four_values_half, _three_values_half, _two_values_half, _one_values_half = (
    _make_weigh_values(count, True) for count in QUERIES_AT_ONCE
)
_six_values_float, _four_values_float, _three_values_float, _two_values_float, _one_values_float = (
    _make_weigh_values(count, False) for count in QUERIES_AT_ONCE
)


@njit(**EXACT)
def softmax(scores, context):
    """Turn the first `context` scores into probabilities; the rest of the last vector is overwritten."""
    num_vectors = (context + LANES - 1) // LANES
    behind = floats(scores + context * 4, num_vectors * LANES - context)
    for i in range(len(behind)):
        behind[i] = -np.inf
    _soften(scores, num_vectors)


@njit(**EXACT)
def score_block(queries, count, keys, is_half, scores, stride, size):
    """Score one block of keys, bfloat16 or float32, for `count` adjacent queries; their scores are `stride` bytes
    apart.
    """
    done = 0
    while done < count:
        left = count - done
        at_queries, at_scores = queries + done * size * 4, scores + done * stride
        if left == 6 or left > 7:
            if is_half:
                _six_keys_half(at_queries, keys, at_scores, stride, size)
            else:
                _six_keys_float(at_queries, keys, at_scores, stride, size)
            done += 6
        elif left >= 4:
            if is_half:
                _four_keys_half(at_queries, keys, at_scores, stride, size)
            else:
                _four_keys_float(at_queries, keys, at_scores, stride, size)
            done += 4
        elif left == 3:
            if is_half:
                _three_keys_half(at_queries, keys, at_scores, stride, size)
            else:
                _three_keys_float(at_queries, keys, at_scores, stride, size)
            done += 3
        elif left == 2:
            if is_half:
                _two_keys_half(at_queries, keys, at_scores, stride, size)
            else:
                _two_keys_float(at_queries, keys, at_scores, stride, size)
            done += 2
        else:
            if is_half:
                _one_keys_half(at_queries, keys, at_scores, stride, size)
            else:
                _one_keys_float(at_queries, keys, at_scores, stride, size)
            done += 1


@njit(**EXACT)
def sum_block(scores, count, stride, values, is_half, row_bytes, num_positions, out, out_bytes):
    """Sum the values of one block's first positions, HEAD_STEP floats wide, for `count` queries: see `weigh_values`."""
    done = 0
    while done < count:
        left = count - done
        at_scores, at_out = scores + done * stride, out + done * out_bytes
        if left == 6 or left > 7:
            if is_half:
                _six_values_half(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            else:
                _six_values_float(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            done += 6
        elif left >= 4:
            if is_half:
                _four_values_half(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            else:
                _four_values_float(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            done += 4
        elif left == 3:
            if is_half:
                _three_values_half(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            else:
                _three_values_float(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            done += 3
        elif left == 2:
            if is_half:
                _two_values_half(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            else:
                _two_values_float(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            done += 2
        else:
            if is_half:
                _one_values_half(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            else:
                _one_values_float(at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
            done += 1
