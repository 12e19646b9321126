"""Products with eight-bit weights that have one scale per output: the twin of four_bit.py, with the same quantised inputs.

A tile is 16 outputs: per group of 32 inputs eight times 64 bytes, byte 4n + j of chunk c being input 4c + j of output n plus 128; at its
end the 16 scales in float32. y = scale * (sum over groups of xs * (w . x8) - 128 * sum of xs * sum(x8)).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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
    ROWS_AT_ONCE,
    TILE,
    WORDS,
    VectorBuilder,
    quantize_group,
)
from engine.kernels.primitives import OPTIONS, floats

BLOCK_BYTES = GROUP * TILE
SCALE_BYTES = 4 * TILE
ZERO = 128


def _make_multiply_tile(num_rows: int) -> Callable[..., None]:
    @intrinsic
    def multiply_tile(typingctx, block, levels, scales, shifts, num_groups, out, out_stride):
        """One tile times `num_rows` rows. Rows of levels, scales and shifts lie one after another; rows of out `out_stride` bytes apart."""

        def generate(context, builder, signature, arguments):
            block, levels, scales, shifts, num_groups, out, out_stride = arguments
            b = VectorBuilder(builder)
            sums = [cgutils.alloca_once_value(builder, ir.Constant(FLOATS, [0.0] * TILE)) for _ in range(num_rows)]
            zero, one = ir.Constant(b.integer, 0), ir.Constant(b.integer, 1)
            with cgutils.for_range_slice(builder, zero, num_groups, one, b.integer) as (group, _):
                place = builder.add(block, b.times(group, BLOCK_BYTES))
                for line in range(BLOCK_BYTES // 64):
                    b.prefetch(b.at(place, AHEAD_BYTES + 64 * line))
                products = [[ir.Constant(WORDS, [0] * TILE)] * 2 for _ in range(num_rows)]
                for chunk in range(GROUP // 4):
                    weights = b.load(BYTES64, b.at(place, 64 * chunk), 64)
                    for row in range(num_rows):
                        place_of_row = builder.add(group, builder.mul(num_groups, ir.Constant(b.integer, row)))
                        inputs = b.at(builder.add(levels, b.times(place_of_row, GROUP)), 4 * chunk)
                        products[row][chunk % 2] = b.dot(products[row][chunk % 2], weights, inputs)
                for row in range(num_rows):
                    index = b.times(builder.add(group, builder.mul(num_groups, ir.Constant(b.integer, row))), 4)
                    level = b.splat(b.load(ir.FloatType(), builder.add(scales, index), 4))
                    product = builder.sitofp(builder.add(*products[row]), FLOATS)
                    builder.store(builder.fadd(builder.load(sums[row]), builder.fmul(product, level, flags=FUSED), flags=FUSED), sums[row])
            scale = b.load(FLOATS, builder.add(block, b.times(num_groups, BLOCK_BYTES)), 64)
            for row in range(num_rows):
                shift = b.splat(b.load(ir.FloatType(), b.at(shifts, 4 * row), 4))
                place = builder.add(out, builder.mul(out_stride, ir.Constant(b.integer, row)))
                b.store(builder.fmul(builder.fsub(builder.load(sums[row]), shift), scale), place, 4)
            return context.get_dummy_value()

        return types.none(*[types.int64] * 7), generate

    return multiply_tile


_four_rows, _two_rows, _one_row = (_make_multiply_tile(rows) for rows in ROWS_AT_ONCE)


@njit(**OPTIONS)
def multiply(a, thread, threads):
    """out = x times the transposed weight, as four_bit.multiply.

    a: rows, outputs, inputs, x (float32), tiles, out (float32), scratch, bytes of scratch a thread (rows * (inputs + inputs / 4 + 4))
    """
    rows, outputs, inputs = a[0], a[1], a[2]
    groups = inputs // GROUP
    tiles = outputs // TILE
    levels = a[6] + thread * a[7]
    scales = levels + rows * inputs
    totals = scales + rows * groups * 4
    shifts_at = totals + rows * groups * 4
    for group in range(rows * groups):
        quantize_group(a[3] + group * GROUP * 4, levels + group * GROUP, scales + group * 4, totals + group * 4)
    shifts = floats(shifts_at, rows)
    for row in range(rows):
        total = np.float32(0.0)
        for part in floats(totals + row * groups * 4, groups):
            total += part
        shifts[row] = total * np.float32(ZERO)
    for tile in range(tiles * thread // threads, tiles * (thread + 1) // threads):
        block = a[4] + tile * (groups * BLOCK_BYTES + SCALE_BYTES)
        row = 0
        while row < rows:
            left = rows - row
            x8, xs, shift = levels + row * inputs, scales + row * groups * 4, shifts_at + row * 4
            out = a[5] + (row * outputs + tile * TILE) * 4
            if left >= 4:
                _four_rows(block, x8, xs, shift, groups, out, outputs * 4)
                row += 4
            elif left >= 2:
                _two_rows(block, x8, xs, shift, groups, out, outputs * 4)
                row += 2
            else:
                _one_row(block, x8, xs, shift, groups, out, outputs * 4)
                row += 1
