"""The inner loops of attention as explicit vectors of sixteen floats, for blocks of sixteen positions.

The compiler does not make these loops into vector code by itself: it cannot know that scores, keys and values do not overlap. Sums stay in
registers; bfloat16 is widened as it is read. LLVM splits the vectors where the processor's are shorter. Addresses are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
HEAD_STEP = 64
"""Floats of a value row that are summed at once, in four vectors."""
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_HALVES = ir.VectorType(ir.IntType(16), LANES)
_FUSED = ("contract",)


def _load(builder: Any, address: Any, is_half: bool) -> Any:
    """Sixteen floats at an address, or sixteen bfloat16 widened."""
    if not is_half:
        return builder.load(builder.inttoptr(address, _FLOATS.as_pointer()), align=4)
    halves = builder.load(builder.inttoptr(address, _HALVES.as_pointer()), align=2)
    shift = ir.Constant(_WORDS, [16] * LANES)
    return builder.bitcast(builder.shl(builder.zext(halves, _WORDS), shift), _FLOATS)


def _splat(builder: Any, address: Any) -> Any:
    """The float at an address, in every lane."""
    value = builder.load(builder.inttoptr(address, ir.FloatType().as_pointer()), align=4)
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), ir.Constant(_WORDS, [0] * LANES))


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, _FLOATS.as_pointer()), align=4)


def _make_weigh_keys(is_half: bool) -> Callable[..., None]:
    row_bytes = LANES * (2 if is_half else 4)

    @intrinsic
    def weigh_keys(typingctx, query, keys, scores, size):
        """scores[p] = sum over d of query[d] * keys[d, p]; `size` is a multiple of four. Four sums, so that additions overlap."""

        def generate(context, builder, signature, arguments):
            query, keys, scores, size = arguments
            integer = size.type
            sums = [cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, [0.0] * LANES)) for _ in range(4)]
            start, step = ir.Constant(integer, 0), ir.Constant(integer, 4)
            with cgutils.for_range_slice(builder, start, size, step, integer) as (d, _):
                for j, total in enumerate(sums):
                    here = builder.add(d, ir.Constant(integer, j))
                    weight = _splat(builder, builder.add(query, builder.mul(here, ir.Constant(integer, 4))))
                    row = _load(builder, builder.add(keys, builder.mul(here, ir.Constant(integer, row_bytes))), is_half)
                    product = builder.fmul(weight, row, flags=_FUSED)
                    builder.store(builder.fadd(builder.load(total), product, flags=_FUSED), total)
            a, b, c, e = (builder.load(total) for total in sums)
            _store(builder, builder.fadd(builder.fadd(a, b), builder.fadd(c, e)), scores)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, types.int64, types.int64), generate

    return weigh_keys


def _make_weigh_values(is_half: bool) -> Callable[..., None]:
    width = 2 if is_half else 4

    @intrinsic
    def weigh_values(typingctx, scores, values, row_bytes, num_positions, out):
        """out[0..64] += sum over positions of scores[p] * values[p, 0..64]; rows of values are `row_bytes` apart."""

        def generate(context, builder, signature, arguments):
            scores, values, row_bytes, num_positions, out = arguments
            integer = num_positions.type
            places = [ir.Constant(integer, LANES * part) for part in range(HEAD_STEP // LANES)]
            targets = [builder.add(out, builder.mul(place, ir.Constant(integer, 4))) for place in places]
            sums = [cgutils.alloca_once_value(builder, _load(builder, target, False)) for target in targets]
            with cgutils.for_range_slice(builder, ir.Constant(integer, 0), num_positions, ir.Constant(integer, 1), integer) as (p, _):
                weight = _splat(builder, builder.add(scores, builder.mul(p, ir.Constant(integer, 4))))
                row = builder.add(values, builder.mul(p, row_bytes))
                for place, total in zip(places, sums, strict=True):
                    part = _load(builder, builder.add(row, builder.mul(place, ir.Constant(integer, width))), is_half)
                    product = builder.fmul(weight, part, flags=_FUSED)
                    builder.store(builder.fadd(builder.load(total), product, flags=_FUSED), total)
            for total, target in zip(sums, targets, strict=True):
                _store(builder, builder.load(total), target)
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, types.int64, types.int64, types.int64), generate

    return weigh_values


weigh_keys_half, weigh_keys_float = _make_weigh_keys(True), _make_weigh_keys(False)
weigh_values_half, weigh_values_float = _make_weigh_values(True), _make_weigh_values(False)
