"""Products with four-bit weights: groups of 32 inputs, rows of activations quantised to eight bits group by group, integer sums (VNNI).

A tile is 16 outputs. Its groups lie one after another, each 320 bytes: four times 64 bytes of nibbles, then 16 scales and 16 minima in
half precision. Byte 4n + j of chunk c holds inputs 8c + j (low nibble) and 8c + 4 + j (high) of output n. So a tile is one stream of
memory, and each integer lane belongs to one output. y = sum over groups of scale * xs * (q . x8) + minimum * xs * sum(x8), where
x is about xs * x8: the way of llama.cpp's Q4_1 x Q8_1 products (ggml, MIT).

Every row is computed by itself in a fixed order: its result is the same alone and in any batch. Needs a processor with AVX512-VNNI.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.primitives import OPTIONS, SIGNATURE, thread_count, thread_number

GROUP = 32
TILE = 16
BLOCK_BYTES = 4 * 64 + 2 * 2 * TILE
ROWS_AT_ONCE = (4, 2, 1)
AHEAD_BYTES = 8 * BLOCK_BYTES
"""How far ahead of the block in work memory is asked for; the processor's own prefetcher stops at each page."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_BYTES16 = ir.VectorType(_BYTE, TILE)
_BYTES64 = ir.VectorType(_BYTE, 64)
_WORDS = ir.VectorType(_WORD, TILE)
_FLOATS = ir.VectorType(ir.FloatType(), TILE)
_HALVES = ir.VectorType(ir.HalfType(), TILE)
_FUSED = ("contract",)


@cache
def is_available() -> bool:
    """Whether this processor has the instructions."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512vnni") and features.get("avx512f") and features.get("f16c"))


class _Builder:
    """The vector operations that both intrinsics are written in. Addresses are integers."""

    def __init__(self, builder: Any) -> None:
        self.ir = builder
        self.integer = ir.IntType(64)

    def at(self, address: Any, offset: int) -> Any:
        return self.ir.add(address, ir.Constant(self.integer, offset)) if offset else address

    def times(self, number: Any, size: int) -> Any:
        return self.ir.mul(number, ir.Constant(self.integer, size))

    def load(self, kind: Any, address: Any, align: int) -> Any:
        return self.ir.load(self.ir.inttoptr(address, kind.as_pointer()), align=align)

    def store(self, value: Any, address: Any, align: int) -> None:
        self.ir.store(value, self.ir.inttoptr(address, value.type.as_pointer()), align=align)

    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, TILE)
        first = self.ir.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
        return self.ir.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(_WORDS, [0] * TILE))

    def prefetch(self, address: Any) -> None:
        byte = _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _WORD, _WORD, _WORD])
        function = cgutils.get_or_insert_function(self.ir.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(_WORD, flag) for flag in (0, 3, 1)]
        self.ir.call(function, [self.ir.inttoptr(address, byte), *flags])

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, kind, name), arguments)


@intrinsic
def quantize_group(typingctx, source, levels, scale, total):
    """Quantise 32 floats: levels (int8), the size of a level (float32) and the level's size times the sum of the levels (float32)."""

    def generate(context, builder, signature, arguments):
        source, levels, scale, total = arguments
        b = _Builder(builder)
        halves = [b.load(_FLOATS, b.at(source, 64 * part), 4) for part in range(2)]
        sizes = [b.call("llvm.fabs.v16f32", _FLOATS, half) for half in halves]
        largest = b.call("llvm.vector.reduce.fmax.v16f32", ir.FloatType(), b.call("llvm.maxnum.v16f32", _FLOATS, *sizes))
        broken = b.call(
            "llvm.vector.reduce.or.v16i1", ir.IntType(1), builder.or_(*[builder.fcmp_unordered("uno", half, half) for half in halves])
        )
        level = builder.fmul(largest, ir.Constant(ir.FloatType(), float(np.float32(1 / 127))))
        least = ir.Constant(ir.FloatType(), float(np.float32(1e-30)))
        inverse = builder.fdiv(ir.Constant(ir.FloatType(), 1.0), b.call("llvm.maxnum.f32", ir.FloatType(), level, least))
        # NOTE: a maximum passes over NaN, which has to stay visible.
        level = builder.select(broken, ir.Constant(ir.FloatType(), float("nan")), level)
        words = []
        for part, half in enumerate(halves):
            rounded = b.call("llvm.rint.v16f32", _FLOATS, builder.fmul(half, b.splat(inverse)))
            words.append(builder.fptosi(rounded, _WORDS))
            b.store(builder.trunc(words[-1], _BYTES16), b.at(levels, TILE * part), 1)
        count = b.call("llvm.vector.reduce.add.v16i32", _WORD, builder.add(*words))
        b.store(level, scale, 4)
        b.store(builder.fmul(level, builder.sitofp(count, ir.FloatType())), total, 4)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, types.int64), generate


def _make_multiply_tile(num_rows: int) -> Callable[..., None]:
    @intrinsic
    def multiply_tile(typingctx, block, levels, scales, totals, num_groups, out, out_stride):
        """One tile times `num_rows` rows. Rows of levels, scales and totals lie one after another; rows of out `out_stride` bytes apart."""

        def generate(context, builder, signature, arguments):
            block, levels, scales, totals, num_groups, out, out_stride = arguments
            b = _Builder(builder)
            sums = [cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, [0.0] * TILE)) for _ in range(num_rows)]
            low_nibbles = ir.Constant(_BYTES64, [15] * 64)
            shift = ir.Constant(ir.VectorType(ir.IntType(16), TILE * 2), [4] * TILE * 2)
            zero, one = ir.Constant(b.integer, 0), ir.Constant(b.integer, 1)
            with cgutils.for_range_slice(builder, zero, num_groups, one, b.integer) as (group, _):
                place = builder.add(block, b.times(group, BLOCK_BYTES))
                for line in range(BLOCK_BYTES // 64):
                    b.prefetch(b.at(place, AHEAD_BYTES + 64 * line))
                products = [[ir.Constant(_WORDS, [0] * TILE)] * 2 for _ in range(num_rows)]
                for chunk in range(4):
                    packed = b.load(_BYTES64, b.at(place, 64 * chunk), 64)
                    low = builder.and_(packed, low_nibbles)
                    shifted = builder.lshr(builder.bitcast(packed, shift.type), shift)
                    high = builder.and_(builder.bitcast(shifted, _BYTES64), low_nibbles)
                    for row in range(num_rows):
                        first = builder.add(
                            builder.add(levels, b.times(builder.mul(num_groups, ir.Constant(b.integer, row)), GROUP)), b.times(group, GROUP)
                        )
                        for half, weights in enumerate((low, high)):
                            four = b.splat(b.load(_WORD, b.at(first, 8 * chunk + 4 * half), 4))
                            products[row][half] = b.call(
                                "llvm.x86.avx512.vpdpbusd.512", _WORDS, products[row][half], weights, builder.bitcast(four, _BYTES64)
                            )
                scale = builder.fpext(b.load(_HALVES, b.at(place, 256), 32), _FLOATS)
                minimum = builder.fpext(b.load(_HALVES, b.at(place, 288), 32), _FLOATS)
                for row in range(num_rows):
                    index = b.times(builder.add(group, builder.mul(num_groups, ir.Constant(b.integer, row))), 4)
                    level = b.splat(b.load(ir.FloatType(), builder.add(scales, index), 4))
                    total = b.splat(b.load(ir.FloatType(), builder.add(totals, index), 4))
                    product = builder.sitofp(builder.add(*products[row]), _FLOATS)
                    value = builder.load(sums[row])
                    value = builder.fadd(value, builder.fmul(product, builder.fmul(scale, level), flags=_FUSED), flags=_FUSED)
                    value = builder.fadd(value, builder.fmul(minimum, total, flags=_FUSED), flags=_FUSED)
                    builder.store(value, sums[row])
            for row in range(num_rows):
                place = builder.add(out, builder.mul(out_stride, ir.Constant(b.integer, row)))
                b.store(builder.load(sums[row]), place, 4)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 7), generate

    return multiply_tile


_four_rows, _two_rows, _one_row = (_make_multiply_tile(rows) for rows in ROWS_AT_ONCE)


@cfunc(SIGNATURE, **OPTIONS)
def multiply(a):
    """out = x times the transposed weight. Each thread quantises the rows for itself, which is quicker than to wait for others.

    a: rows, outputs, inputs, x (float32), tiles, out (float32), scratch, bytes of scratch a thread (rows * (inputs + inputs / 4))
    """
    rows, outputs, inputs = a[0], a[1], a[2]
    groups = inputs // GROUP
    thread, threads = thread_number(), thread_count()
    tiles = outputs // TILE
    levels = a[6] + thread * a[7]
    scales = levels + rows * inputs
    totals = scales + rows * groups * 4
    for group in range(rows * groups):
        quantize_group(a[3] + group * GROUP * 4, levels + group * GROUP, scales + group * 4, totals + group * 4)
    for tile in range(tiles * thread // threads, tiles * (thread + 1) // threads):
        block = a[4] + tile * groups * BLOCK_BYTES
        row = 0
        while row < rows:
            left = rows - row
            x8, xs, xt = levels + row * inputs, scales + row * groups * 4, totals + row * groups * 4
            out = a[5] + (row * outputs + tile * TILE) * 4
            if left >= 4:
                _four_rows(block, x8, xs, xt, groups, out, outputs * 4)
                row += 4
            elif left >= 2:
                _two_rows(block, x8, xs, xt, groups, out, outputs * 4)
                row += 2
            else:
                _one_row(block, x8, xs, xt, groups, out, outputs * 4)
                row += 1
