"""Products of rows with integer weights on AVX512-VNNI: activations quantised to eight bits per row and group of 32
inputs.

Weights are cut into panels of 32 outputs (panels.py), rows into blocks of 8, 4, 2 and 1. Three or seven remaining rows
make a block with a copy of the last row, whose results are not stored: another block would read the panel again. A
panel stays in the caches while all blocks are multiplied by it, and each block prefetches a share of the next panel. A
block's 16 integer sums stay in registers for a group and are then scaled into as many float sums.

A block has a record per group, one after another, so that it reads one stream: the levels of its rows, 32 bytes each,
then for each row the size of a level, that times the sum of the levels, and -MAGIC times it (float32). After the last
group follow the rows' shifts.

Every row is computed by itself in a fixed order: its result is the same alone and in any batch.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.integer_vectors import (
    BYTES64,
    CHUNKS,
    GROUP,
    LANES,
    PANEL,
    VECTORS,
    WORD,
    WORDS,
    VectorBuilder,
    quantize_group,
)
from engine.kernels.cpu.panels import ZERO, EightBitPanel, FourBitPanel, OpenedPanel, OpeningPanel
from engine.kernels.cpu.primitives import OPTIONS, floats

MAX_BLOCK_ROWS = 8
OPENED_FROM = 2 * MAX_BLOCK_ROWS
"""Rows from which a four-bit panel is opened once instead of in each block."""
NEAR_BYTES = 1 << 20
"""Records that stay in the second-level cache; more rows take several passes through all panels."""
ROW_BYTES = GROUP + 12
"""Bytes of a row in a record."""
SHIFT_BYTES = 4
LINE = 64
AHEAD_BYTES = 4096
"""How far ahead a single block prefetches, one page: the hardware prefetcher stops at page ends."""


def _build_block(
    b: VectorBuilder,
    panel: FourBitPanel | EightBitPanel,
    num_rows: int,
    weights: Any,
    opened: Any,
    records: Any,
    num_groups: Any,
    out: Any,
    out_stride: Any,
    ahead: Any,
    num_lines: Any,
    num_kept: Any,
) -> None:
    builder = b.ir
    places = [(row, vector) for row in range(num_rows) for vector in range(VECTORS)]
    targets = {
        (row, vector): b.at(builder.add(out, b.times(out_stride, row)), 4 * LANES * vector) for row, vector in places
    }
    for target in targets.values():
        b.prefetch(target, is_written=True)
    shifts = builder.add(records, b.times(num_groups, num_rows * ROW_BYTES))
    begins = [panel.begin(b, b.splat_float(b.at(shifts, 4 * row))) for row in range(num_rows)]
    sums = {(row, vector): cgutils.alloca_once_value(builder, begins[row]) for row, vector in places}
    with b.loop(num_groups) as group:
        place = panel.place(b, weights, opened, group)
        record = builder.add(records, b.times(group, num_rows * ROW_BYTES))
        products = _multiply_group(b, panel, num_rows, place, record)
        with b.loop(num_lines) as line:
            b.prefetch(builder.add(ahead, b.times(builder.add(builder.mul(group, num_lines), line), LINE)))
        scales = [panel.scales(b, place, vector) for vector in range(VECTORS)]
        for row, vector in places:
            of_row = [b.splat_float(b.at(record, num_rows * (GROUP + 4 * part) + 4 * row)) for part in range(3)]
            total = sums[row, vector]
            value = panel.add_group(b, builder.load(total), products[row, vector], scales[vector], of_row)
            builder.store(value, total)
    is_last_kept = builder.icmp_signed("==", num_kept, ir.Constant(b.integer, num_rows))
    for row in range(num_rows):
        with builder.if_then(is_last_kept, likely=True) if row == num_rows - 1 else nullcontext():
            for vector in range(VECTORS):
                value = panel.finish(b, builder.load(sums[row, vector]), weights, num_groups, vector)
                b.store(value, targets[row, vector], 4)


def _multiply_group(
    b: VectorBuilder, panel: FourBitPanel | EightBitPanel, num_rows: int, place: Any, record: Any
) -> dict:
    """Return the integer products of one group by row and vector.

    Small blocks have two sums each, so that additions overlap.
    """
    places = [(row, vector) for row in range(num_rows) for vector in range(VECTORS)]
    starts = [panel.start_bits] if num_rows == MAX_BLOCK_ROWS else [panel.start_bits, 0]
    products = [{place: ir.Constant(WORDS, [start] * LANES) for place in places} for start in starts]
    for pair in range(CHUNKS // 2):
        weights = [panel.weights(b, place, pair, vector) for vector in range(VECTORS)]
        for half in range(2):
            sums = products[half % len(starts)]
            for row in range(num_rows):
                four = b.splat(b.load(WORD, b.at(record, GROUP * row + 4 * (2 * pair + half)), 4))
                for vector in range(VECTORS):
                    sums[row, vector] = b.dot(sums[row, vector], weights[vector][half], b.ir.bitcast(four, BYTES64))
    return (
        products[0]
        if len(products) == 1
        else {place: b.ir.add(*(part[place] for part in products)) for place in places}
    )


FOUR, OPENING, OPENED, EIGHT = range(4)
_PANELS = {FOUR: FourBitPanel(), OPENING: OpeningPanel(), OPENED: OpenedPanel(), EIGHT: EightBitPanel()}
_BLOCKS = [(kind, rows) for kind in (FOUR, EIGHT) for rows in (8, 4, 2, 1)] + [(OPENING, 8), (OPENED, 8)]


@intrinsic
def _multiply_block(
    typingctx, kind, num_rows, weights, opened, records, num_groups, out, out_stride, ahead, num_lines, num_kept
):
    """Multiply `num_rows` rows by one panel of a kind and store the first `num_kept`: all, or all but the last.

    Rows of out are `out_stride` bytes apart. Each group prefetches `num_lines` cache lines from `ahead` on.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        kind, num_rows, *of_block = arguments
        for block_kind, block_rows in _BLOCKS:
            is_kind = builder.icmp_signed("==", kind, ir.Constant(b.integer, block_kind))
            has_rows = builder.icmp_signed("==", num_rows, ir.Constant(b.integer, block_rows))
            with builder.if_then(builder.and_(is_kind, has_rows)):
                _build_block(b, _PANELS[block_kind], block_rows, *of_block)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 11), generate


_FOUR_BLOCK, _OPENED_BLOCK = FourBitPanel.block_bytes, FourBitPanel.opened_bytes
_EIGHT_BLOCK, _EIGHT_END = EightBitPanel.block_bytes, EightBitPanel.end_bytes
_ZERO = np.float32(ZERO)


def opened_bytes(num_inputs: int) -> int:
    """Return the bytes of an opened panel."""
    return num_inputs // GROUP * _OPENED_BLOCK


def record_bytes(num_rows: int, num_inputs: int) -> int:
    """Return the bytes of the records of all rows and of the copy that may fill the last block."""
    return (num_rows + 1) * (num_inputs // GROUP * ROW_BYTES + SHIFT_BYTES)


def scratch_bytes(num_rows: int, num_inputs: int) -> int:
    """Return the scratch bytes of a thread: an opened panel, then the records of all rows."""
    return opened_bytes(num_inputs) + record_bytes(num_rows, num_inputs)


@njit(inline="always")
def block_rows(left):
    """Return the rows of the next block if `left` remain, the copy included."""
    if left >= 7:
        return 8
    if left >= 3:
        return 4
    return left


@njit(inline="always")
def num_blocks(rows):
    """Return the number of blocks of `rows`."""
    left = rows % 8
    return rows // 8 + (left > 0) + (left == 5 or left == 6)


@njit(inline="always")
def quantize_row(source, groups, record, size, row):
    """Write row `row` of a block of `size` rows into its records."""
    tail = record + size * GROUP + row * 4
    shift = np.float32(0.0)
    for group in range(groups):
        at = group * size * ROW_BYTES
        total = tail + at + size * 4
        quantize_group(source + group * GROUP * 4, record + at + row * GROUP, tail + at, total, total + size * 4)
        shift -= floats(total, 1)[0] * _ZERO
    floats(record + groups * size * ROW_BYTES + row * 4, 1)[0] = shift


@njit(inline="always")
def quantize_rows(source, rows, groups, records, part, parts):
    """Write the records of part `part` of `parts` of the rows."""
    first, last = rows * part // parts, rows * (part + 1) // parts
    row = 0
    while row < last:
        size = block_rows(rows - row)
        record = records + row * (groups * ROW_BYTES + SHIFT_BYTES)
        for i in range(max(first - row, 0), min(size, last - row)):
            quantize_row(source + (row + i) * groups * GROUP * 4, groups, record, size, i)
        if row + size > rows and last == rows:
            quantize_row(source + (rows - 1) * groups * GROUP * 4, groups, record, size, size - 1)
        row += size


@njit(**OPTIONS)
def quantize_groups(a, thread, part, parts):
    """Write the records of x for all threads. a: rows, inputs, x (float32), records."""
    quantize_rows(a[2], a[0], a[1] // GROUP, a[3], part, parts)


@njit(**OPTIONS)
def multiply(a, thread, part, parts, is_first):
    """Compute out = x times the transposed weight; a part is a range of panels.

    a: rows, outputs, inputs, x (float32), panels, out (float32), scratch, bytes of scratch a thread, bits of a weight,
    records of x, or 0: each thread then writes its own with the first part it takes, outputs between two rows of out
    """
    rows, outputs, inputs, bits = a[0], a[1], a[2], a[8]
    groups, panels = inputs // GROUP, outputs // PANEL
    row_bytes = groups * ROW_BYTES + SHIFT_BYTES
    opened = a[6] + thread * a[7]
    records, stride = a[9], a[10]
    if records == 0:
        records = opened + groups * _OPENED_BLOCK
        if is_first:
            quantize_rows(a[3], rows, groups, records, 0, 1)
    block_bytes = _FOUR_BLOCK if bits == 4 else _EIGHT_BLOCK
    panel_bytes = groups * block_bytes + (0 if bits == 4 else _EIGHT_END)
    turns = rows * row_bytes // NEAR_BYTES + 1
    span = (rows // turns // 8 + 1) * 8
    for first in range(0, rows, span):
        last = min(first + span, rows)
        count = last - first
        blocks = num_blocks(count)
        lines = (block_bytes // LINE + blocks - 1) // blocks
        for panel in range(panels * part // parts, panels * (part + 1) // parts):
            weights = a[4] + panel * panel_bytes
            ahead = weights + (AHEAD_BYTES if blocks == 1 else panel_bytes)
            row = first
            while row < last:
                size = block_rows(last - row)
                kept = min(size, last - row)
                record = records + row * row_bytes
                out = a[5] + (row * stride + panel * PANEL) * 4
                if bits == 8:
                    kind = EIGHT
                elif size < 8 or count < OPENED_FROM:
                    kind = FOUR
                else:
                    kind = OPENING if row == first else OPENED
                _multiply_block(kind, size, weights, opened, record, groups, out, stride * 4, ahead, lines, kept)
                ahead += groups * lines * LINE
                row += size
