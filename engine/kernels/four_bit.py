"""Products with four-bit weights: groups of 32 inputs, rows of activations quantised to eight bits group by group, integer sums (VNNI).

A tile is 16 outputs. Its groups lie one after another, each 320 bytes: four times 64 bytes of nibbles, then 16 scales and 16 minima in
half precision. Byte 4n + j of chunk c holds inputs 8c + j (low nibble) and 8c + 4 + j (high) of output n. So a tile is one stream of
memory, and each integer lane belongs to one output. y = sum over groups of scale * xs * (q . x8) + minimum * xs * sum(x8), where
x is about xs * x8: the way of llama.cpp's Q4_1 x Q8_1 products (ggml, MIT).

Every row is computed by itself in a fixed order: its result is the same alone and in any batch. Needs a processor with AVX512-VNNI.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.integer_vectors import (
    AHEAD_BYTES,
    BYTES64,
    FLOATS,
    FUSED,
    GROUP,
    HALVES,
    ROWS_AT_ONCE,
    TILE,
    WORDS,
    VectorBuilder,
    quantize_group,
)
from engine.kernels.primitives import OPTIONS

BLOCK_BYTES = 4 * 64 + 2 * 2 * TILE


def _make_multiply_tile(num_rows: int) -> Callable[..., None]:
    @intrinsic
    def multiply_tile(typingctx, block, levels, scales, totals, num_groups, out, out_stride):
        """One tile times `num_rows` rows. Rows of levels, scales and totals lie one after another; rows of out `out_stride` bytes apart."""

        def generate(context, builder, signature, arguments):
            block, levels, scales, totals, num_groups, out, out_stride = arguments
            b = VectorBuilder(builder)
            sums = [cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * TILE)) for _ in range(num_rows)]
            low_nibbles = ir.Constant(BYTES64, [15] * 64)
            shift = ir.Constant(ir.VectorType(ir.IntType(16), TILE * 2), [4] * TILE * 2)
            zero, one = ir.Constant(b.integer, 0), ir.Constant(b.integer, 1)
            with cgutils.for_range_slice(builder, zero, num_groups, one, b.integer) as (group, _):
                place = builder.add(block, b.times(group, BLOCK_BYTES))
                for line in range(BLOCK_BYTES // 64):
                    b.prefetch(b.at(place, AHEAD_BYTES + 64 * line))
                products = [[ir.Constant(WORDS, [0] * TILE)] * 2 for _ in range(num_rows)]
                for chunk in range(4):
                    packed = b.load(BYTES64, b.at(place, 64 * chunk), 64)
                    low = builder.and_(packed, low_nibbles)
                    shifted = builder.lshr(builder.bitcast(packed, shift.type), shift)
                    high = builder.and_(builder.bitcast(shifted, BYTES64), low_nibbles)
                    for row in range(num_rows):
                        first = builder.add(
                            builder.add(levels, b.times(builder.mul(num_groups, ir.Constant(b.integer, row)), GROUP)), b.times(group, GROUP)
                        )
                        for half, weights in enumerate((low, high)):
                            products[row][half] = b.dot(products[row][half], weights, b.at(first, 8 * chunk + 4 * half))
                scale = builder.fpext(b.load(HALVES, b.at(place, 256), 32), FLOATS)
                minimum = builder.fpext(b.load(HALVES, b.at(place, 288), 32), FLOATS)
                for row in range(num_rows):
                    index = b.times(builder.add(group, builder.mul(num_groups, ir.Constant(b.integer, row))), 4)
                    level = b.splat(b.load(ir.FloatType(), builder.add(scales, index), 4))
                    total = b.splat(b.load(ir.FloatType(), builder.add(totals, index), 4))
                    product = builder.sitofp(builder.add(*products[row]), FLOATS)
                    value = builder.load(sums[row])
                    value = builder.fadd(value, builder.fmul(product, builder.fmul(scale, level), flags=FUSED), flags=FUSED)
                    value = builder.fadd(value, builder.fmul(minimum, total, flags=FUSED), flags=FUSED)
                    builder.store(value, sums[row])
            for row in range(num_rows):
                place = builder.add(out, builder.mul(out_stride, ir.Constant(b.integer, row)))
                b.store(builder.load(sums[row]), place, 4)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 7), generate

    return multiply_tile


_four_rows, _two_rows, _one_row = (_make_multiply_tile(rows) for rows in ROWS_AT_ONCE)


@njit(**OPTIONS)
def multiply(a, thread, threads):
    """out = x times the transposed weight. Each thread quantises the rows for itself, which is quicker than to wait for others.

    a: rows, outputs, inputs, x (float32), tiles, out (float32), scratch, bytes of scratch a thread (rows * (inputs + inputs / 4))
    """
    rows, outputs, inputs = a[0], a[1], a[2]
    groups = inputs // GROUP
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
