"""The inner loops of attention, for blocks of sixteen positions, and of the gate, as vectors of sixteen floats.

The compiler does not vectorise these loops, as it cannot know that scores, keys and values do not overlap. Sums stay in
registers; bfloat16 is widened as it is read, once for up to six queries. A query's additions have one order and one
rounding, whatever is computed beside it: fused multiply-adds are explicit. LLVM splits the vectors on processors with
shorter ones. Addresses are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.integer_vectors import FLOAT, FLOATS, LANES, WORDS, VectorBuilder
from engine.kernels.cpu.primitives import floats

HEAD_STEP = 64
"""Floats of a value row that are summed at once, in four vectors."""
QUERIES_AT_ONCE = (6, 4, 3, 2, 1)
"""Six queries have 24 sums, in 32 registers."""
GELU, CUBE = 1.5957691216057308, 0.044715
"""gelu(x) in its form with tanh is x * sigmoid(GELU * x * (1 + CUBE * x^2)); GELU is 2 * sqrt(2 / pi)."""
EXACT = {"fastmath": False, "error_model": "numpy"}
"""Explicit, because a function inherits its caller's permission to reorder additions."""
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_BYTES = 4 * LANES


@intrinsic
def _weigh_keys(typingctx, count, is_half, queries, keys, scores, stride, size):
    """Compute scores[p] = sum over d of query[d] * keys[d, p] for `count` queries, with scores `stride` bytes apart.

    `size` is a multiple of four. Each query has four sums, so that additions overlap.
    """

    def generate(context, builder, signature, arguments):
        _for_each_count(VectorBuilder(builder), arguments, _build_weigh_keys)
        return context.get_dummy_value()

    return types.none(types.int64, types.boolean, *[types.int64] * 5), generate


@intrinsic
def _weigh_values(typingctx, count, is_half, scores, stride, values, row_bytes, num_positions, out, out_bytes):
    """Compute out[0..64] += sum over positions of scores[p] * values[p, 0..64] for `count` queries.

    Rows of values are `row_bytes` apart; scores of the queries `stride` bytes, their results `out_bytes`.
    """

    def generate(context, builder, signature, arguments):
        _for_each_count(VectorBuilder(builder), arguments, _build_weigh_values)
        return context.get_dummy_value()

    return types.none(types.int64, types.boolean, *[types.int64] * 7), generate


def build_for_each_count(b: VectorBuilder, count: Any, build: Callable[[int], None]) -> None:
    """Build for each number of queries that are computed at once, and branch to that of `count`."""
    for number in QUERIES_AT_ONCE:
        with b.ir.if_then(b.ir.icmp_signed("==", count, ir.Constant(b.integer, number))):
            build(number)


def _for_each_count(b: VectorBuilder, arguments: list[Any], build: Callable[..., None]) -> None:
    """Build a loop for each number of queries and each type of keys or values, and branch to that of the arguments."""
    count, is_half, *of_loop = arguments
    with b.ir.if_else(is_half) as branches:
        for branch, half in zip(branches, (True, False), strict=True):
            with branch:
                build_for_each_count(b, count, lambda number, half=half: build(b, number, half, *of_loop))


def _build_weigh_keys(
    b: VectorBuilder, count: int, is_half: bool, queries: Any, keys: Any, scores: Any, stride: Any, size: Any
) -> None:
    sums = [[cgutils.alloca_once_value(b.ir, constant(0.0)) for _ in range(4)] for _ in range(count)]
    query_bytes = b.times(size, 4)
    firsts = [b.ir.add(queries, b.times(query_bytes, number)) for number in range(count)]
    with b.loop(size, step=4) as d:
        for j in range(4):
            here = b.at(d, j)
            row = _load(b, b.ir.add(keys, b.times(here, LANES * (2 if is_half else 4))), is_half)
            for first, totals in zip(firsts, sums, strict=True):
                weight = b.splat_float(b.ir.add(first, b.times(here, 4)))
                b.ir.store(b.fused(weight, row, b.ir.load(totals[j])), totals[j])
    for number, totals in enumerate(sums):
        first, second, third, fourth = (b.ir.load(total) for total in totals)
        whole = b.ir.fadd(b.ir.fadd(first, second), b.ir.fadd(third, fourth))
        b.store(whole, b.ir.add(scores, b.times(stride, number)), 4)


def _build_weigh_values(
    b: VectorBuilder,
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
    parts = range(HEAD_STEP // LANES)
    vector_bytes = LANES * (2 if is_half else 4)
    firsts = [b.ir.add(scores, b.times(stride, number)) for number in range(count)]
    rows = [b.ir.add(out, b.times(out_bytes, number)) for number in range(count)]
    targets = [[b.at(row, _BYTES * part) for part in parts] for row in rows]
    sums = [[cgutils.alloca_once_value(b.ir, _load(b, target)) for target in of_query] for of_query in targets]
    with b.loop(num_positions) as position:
        row = b.ir.add(values, b.ir.mul(position, row_bytes))
        loaded = [_load(b, b.at(row, vector_bytes * part), is_half) for part in parts]
        for first, totals in zip(firsts, sums, strict=True):
            weight = b.splat_float(b.ir.add(first, b.times(position, 4)))
            for part, total in zip(loaded, totals, strict=True):
                b.ir.store(b.fused(weight, part, b.ir.load(total)), total)
    for of_query, totals in zip(targets, sums, strict=True):
        for target, total in zip(of_query, totals, strict=True):
            b.store(b.ir.load(total), target, 4)


@intrinsic
def _soften(typingctx, scores, num_vectors):
    """Turn `num_vectors` vectors of scores into probabilities: exp(score - largest) over the sum of these."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        scores, num_vectors = arguments

        def each(act: Callable[[Any, Any], None]) -> None:
            with b.loop(num_vectors) as number:
                place = builder.add(scores, b.times(number, _BYTES))
                act(place, _load(b, place))

        def gather(place: Any, value: Any) -> None:
            held = builder.load(top)
            builder.store(builder.select(builder.fcmp_ordered(">", held, value), held, value), top)

        def raise_and_add(place: Any, value: Any) -> None:
            raised = _exp(b, builder.fsub(value, largest))
            b.store(raised, place, 4)
            builder.store(builder.fadd(builder.load(total), raised), total)

        top = cgutils.alloca_once_value(builder, _load(b, scores))
        total = cgutils.alloca_once_value(builder, constant(0.0))
        each(gather)
        largest = b.splat(b.call("llvm.vector.reduce.fmax.v16f32", FLOAT, builder.load(top)))
        each(raise_and_add)
        whole = sum_lanes(builder, builder.load(total))
        factor = b.splat(builder.fdiv(ir.Constant(FLOAT, 1.0), whole))
        each(lambda place, value: b.store(builder.fmul(value, factor), place, 4))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


def _make_gate(is_gelu: bool, has_up: bool) -> Callable[..., None]:
    @intrinsic
    def gate(typingctx, gates, ups, out, num_vectors):
        """Compute out = act(gate) * up, or act(gate), over `num_vectors` vectors of floats."""

        def generate(context, builder, signature, arguments):
            b = VectorBuilder(builder)
            gates, ups, out, num_vectors = arguments
            with b.loop(num_vectors) as number:
                offset = b.times(number, _BYTES)
                gate = _load(b, builder.add(gates, offset))
                most = constant(88.0)
                exponent = builder.fneg(_logistic(b, gate) if is_gelu else gate)
                exponent = builder.select(builder.fcmp_ordered(">", exponent, most), most, exponent)
                gated = builder.fdiv(gate, builder.fadd(_exp(b, exponent), constant(1.0)))
                if has_up:
                    gated = builder.fmul(gated, _load(b, builder.add(ups, offset)))
                b.store(gated, builder.add(out, offset), 4)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 4), generate

    return gate


def _logistic(b: VectorBuilder, x: Any) -> Any:
    """Compute the argument of the sigmoid that multiplies x in gelu."""
    return b.ir.fmul(x, b.fused(b.ir.fmul(x, x), constant(GELU * CUBE), constant(GELU)))


def _load(b: VectorBuilder, address: Any, is_half: bool = False) -> Any:
    """Load sixteen floats, or sixteen bfloat16 widened, from an address."""
    if not is_half:
        return b.load(FLOATS, address, 4)
    words = b.ir.zext(b.load(_HALVES, address, 2), WORDS)
    return b.ir.bitcast(b.ir.shl(words, ir.Constant(WORDS, [16] * LANES)), FLOATS)


def constant(number: float) -> Any:
    return ir.Constant(FLOATS, [number] * LANES)


def _exp(b: VectorBuilder, x: Any) -> Any:
    """Compute e^x in each lane as primitives.exp, with fused operations.

    x is at most 88; values below -87 count as -87, NaN stays.
    """
    low = constant(-87.0)
    x = b.ir.select(b.ir.fcmp_ordered("<", x, low), low, x)
    n = b.call("llvm.floor.v16f32", FLOATS, b.fused(x, constant(1.44269504), constant(0.5)))
    r = b.fused(n, constant(-0.693359375), x)
    r = b.fused(n, constant(2.12194440e-4), r)
    p = constant(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = b.fused(p, r, constant(coefficient))
    p = b.fused(b.ir.fmul(p, r), r, b.ir.fadd(r, constant(1.0)))
    exponents = b.ir.add(b.ir.fptosi(n, WORDS), ir.Constant(WORDS, [127] * LANES))
    return b.ir.fmul(p, b.ir.bitcast(b.ir.shl(exponents, ir.Constant(WORDS, [23] * LANES)), FLOATS))


def sum_lanes(builder: Any, vector: Any) -> Any:
    """Add all lanes, in pairs (`reassoc`)."""
    kind = ir.FunctionType(FLOAT, [FLOAT, FLOATS])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.fadd.v16f32")
    return builder.call(function, (ir.Constant(FLOAT, -0.0), vector), fastmath=("reassoc",))


_silu_up, _gelu_up = _make_gate(False, True), _make_gate(True, True)
_silu, _gelu = _make_gate(False, False), _make_gate(True, False)


@njit(**EXACT)
def gate_vectors(is_gelu, gates, ups, out, num_vectors):
    """Compute out = act(gate) * up over `num_vectors` vectors of floats."""
    if is_gelu:
        _gelu_up(gates, ups, out, num_vectors)
    else:
        _silu_up(gates, ups, out, num_vectors)


@njit(**EXACT)
def activate_vectors(is_gelu, x, out, num_vectors):
    """Compute out = act(x) over `num_vectors` vectors of floats."""
    if is_gelu:
        _gelu(x, x, out, num_vectors)
    else:
        _silu(x, x, out, num_vectors)


@njit(**EXACT)
def softmax(scores, context):
    """Turn the first `context` scores into probabilities; the rest of the last vector is overwritten."""
    num_vectors = (context + LANES - 1) // LANES
    behind = floats(scores + context * 4, num_vectors * LANES - context)
    for i in range(len(behind)):
        behind[i] = -np.inf
    _soften(scores, num_vectors)


@njit(inline="always")
def queries_at_once(left):
    """Return how many of the `left` queries are computed next."""
    if left == 6 or left > 7:
        return 6
    return min(left, 4)


@njit(**EXACT)
def score_block(queries, count, keys, is_half, scores, stride, size):
    """Score one block of keys for `count` adjacent queries; their scores are `stride` bytes apart."""
    done = 0
    while done < count:
        taken = queries_at_once(count - done)
        _weigh_keys(taken, is_half, queries + done * size * 4, keys, scores + done * stride, stride, size)
        done += taken


@njit(**EXACT)
def sum_block(scores, count, stride, values, is_half, row_bytes, num_positions, out, out_bytes):
    """Sum the values of one block's first positions, HEAD_STEP floats wide, for `count` queries."""
    done = 0
    while done < count:
        taken = queries_at_once(count - done)
        at_scores, at_out = scores + done * stride, out + done * out_bytes
        _weigh_values(taken, is_half, at_scores, stride, values, row_bytes, num_positions, at_out, out_bytes)
        done += taken
