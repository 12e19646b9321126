"""Products of rows with integer weights on AVX512-VNNI: activations quantised to eight bits per row and group of 32
inputs.

Weights are cut into panels of 32 outputs (panels.py), rows into blocks of 8, 4, 2 and 1. Three or seven remaining rows
make a block with a copy of the last row, whose results are not stored: another block would read the panel again. With
many rows a panel is cut into chunks of groups, else it is one chunk. A chunk stays in the caches while all blocks are
multiplied by it, and each block prefetches a share of the next chunk. A block's 16 integer sums stay in registers for a
group and are then scaled into as many float sums, which wait in the results from one chunk to the next.

A block has a record per group, one after another, so that it reads one stream: of each row ROW_BYTES as
`quantize_two_groups` writes them.

Every row is computed by itself in a fixed order: its result is the same alone and in any batch.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.cpu.integer_vectors import (
    BYTES64,
    CHUNKS,
    FLOATS,
    GROUP,
    LANES,
    NUMBERS,
    PANEL,
    ROW_BYTES,
    VECTORS,
    WORD,
    VectorBuilder,
    quantize_two_groups,
)
from engine.kernels.cpu.panels import (
    EIGHT_BIT,
    FORMATS,
    OPENED_BYTES,
    SUPERBLOCK,
    EightBitPanel,
    OpenedPanel,
    PackedPanel,
)
from engine.kernels.cpu.primitives import OPTIONS

MAX_BLOCK_ROWS = 8
OPENED_FROM = 2 * MAX_BLOCK_ROWS
"""Rows from which a packed panel is opened once instead of in each block."""
MAX_SUMS = 16
"""Integer sums that stay in registers."""
NEAR_BYTES = 3 << 18
"""Records that stay in the second-level cache, beside a panel; with more, panels are cut into chunks."""
CHUNK_GROUPS = 48
"""Groups of a chunk, whole superblocks. Fewer would leave more sums in the results, more would leave the caches."""
LINE = 64
AHEAD_BYTES = 4096
"""How far ahead a single block prefetches, one page: the hardware prefetcher stops at page ends."""


def _build_block(
    b: VectorBuilder,
    panel: PackedPanel | EightBitPanel,
    num_rows: int,
    weights: Any,
    opened: Any,
    records: Any,
    first_group: Any,
    end_group: Any,
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
    sums = {place: cgutils.alloca_once_value(builder, b.floats(0.0)) for place in places}
    is_last_kept = builder.icmp_signed("==", num_kept, ir.Constant(b.integer, num_rows))
    is_later = builder.icmp_signed(">", first_group, ir.Constant(b.integer, 0))
    with builder.if_then(is_later, likely=False):
        for (row, vector), target in targets.items():
            # There may be no memory where a copy's results would be.
            kept = (
                builder.select(is_last_kept, target, targets[num_rows - 2, vector])
                if row == num_rows - 1 > 0
                else target
            )
            builder.store(b.load(FLOATS, kept, 4), sums[row, vector])
    with b.loop(builder.sub(end_group, first_group)) as number:
        place = panel.place(b, weights, opened, builder.add(first_group, number))
        record = builder.add(records, b.times(number, num_rows * ROW_BYTES))
        with b.loop(num_lines) as line:
            b.prefetch(builder.add(ahead, b.times(builder.add(builder.mul(number, num_lines), line), LINE)))
        num_sums = 2 if panel.is_centred or num_rows < MAX_BLOCK_ROWS else 1
        pass_rows = min(num_rows, MAX_SUMS // num_sums // VECTORS)
        for first in range(0, num_rows, pass_rows):
            reader = panel.later if first else panel
            rows = range(first, first + pass_rows)
            products = _multiply_group(b, reader, rows, num_sums, place, record)
            scales = [reader.scales(b, place, vector) for vector in range(VECTORS)]
            for row in rows:
                of_row = [b.splat_float(b.at(record, ROW_BYTES * row + 4 * part)) for part in range(3)]
                for vector in range(VECTORS):
                    total = sums[row, vector]
                    value = reader.add(b, builder.load(total), products[row, vector], scales[vector], of_row)
                    builder.store(value, total)
    is_end = builder.icmp_signed("==", end_group, num_groups)
    ends = [panel.end(b, weights, opened, num_groups, is_end, vector) for vector in range(VECTORS)]
    for row in range(num_rows):
        with builder.if_then(is_last_kept, likely=True) if row == num_rows - 1 else nullcontext():
            for vector in range(VECTORS):
                value = panel.finish(b, builder.load(sums[row, vector]), ends[vector])
                b.store(value, targets[row, vector], 4)


def _multiply_group(
    b: VectorBuilder,
    panel: PackedPanel | EightBitPanel,
    rows: range,
    num_sums: int,
    place: Any,
    record: Any,
) -> dict[tuple[int, int], list[Any]]:
    """Return the integer products of one group by row and vector, in one or two sums.

    Two are of the first and last 16 inputs if the panel is centred, else any, so that additions overlap.
    """
    products: dict[tuple[int, int], list[Any]] = {}
    for row in rows:
        numbers = [b.at(record, ROW_BYTES * row + 4 * part) for part in range(3, NUMBERS)]
        begins = panel.starts(b, numbers, num_sums)
        products |= {(row, vector): list(begins) for vector in range(VECTORS)}
    for pairs in [(0, 2), (1, 3)] if panel.is_centred else [(pair,) for pair in range(CHUNKS // 2)]:
        weights = {pair: [panel.weights(b, place, pair, vector) for vector in range(VECTORS)] for pair in pairs}
        for half, pair in product(range(2), pairs):
            number = pairs.index(pair) if panel.is_centred else half % num_sums
            for row in rows:
                levels = b.at(record, ROW_BYTES * row + 4 * NUMBERS)
                four = b.splat(b.load(WORD, b.at(levels, 4 * (2 * pair + half)), 4))
                for vector in range(VECTORS):
                    sums = products[row, vector]
                    sums[number] = b.dot(sums[number], weights[pair][vector][half], b.ir.bitcast(four, BYTES64))
    return products


_NUM_FORMATS = len(FORMATS)
EIGHT = _NUM_FORMATS - 1
_READERS = (
    *FORMATS,
    *(panel.opening for panel in FORMATS[:EIGHT]),
    OpenedPanel(4, 0),
    OpenedPanel(6, 1),
)
"""Readers of panels: as they are by format, the same opening them, and of opened ones without and with a centre."""
_OPENED = np.array(
    [len(_READERS) - 2 + panel.is_centred if isinstance(panel, PackedPanel) else EIGHT for panel in FORMATS[:EIGHT]]
)
_SIZE_BITS = 4
_BLOCKS = {
    number << _SIZE_BITS | rows: (reader, rows)
    for number, reader in enumerate(_READERS)
    for rows in (8, 4, 2, 1)
    if (rows == MAX_BLOCK_ROWS if number >= _NUM_FORMATS else rows < MAX_BLOCK_ROWS or not reader.is_centred)
}
"""The blocks that are compiled: reader and number of rows."""


@intrinsic
def _multiply_block(
    typingctx, reader, num_rows, weights, opened, records, first, end, groups, out, out_stride, ahead, lines, kept
):
    """Multiply `num_rows` rows by a chunk of a panel as a reader reads it.

    The chunk is groups `first` to `end` of `groups`. `weights` and `opened` are where the whole panel begins, `records`
    where the chunk's do. The first `kept` rows of `out` are stored: all, or all but the last; if `first` is not 0 their
    sums so far are read from there. Rows of `out` are `out_stride` bytes apart. Each group prefetches `lines` cache
    lines from `ahead` on.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        reader, num_rows, *of_block = arguments
        number = builder.or_(builder.shl(reader, ir.Constant(b.integer, _SIZE_BITS)), num_rows)
        end = builder.append_basic_block()
        switch = builder.switch(number, end)
        for block, (panel, rows) in _BLOCKS.items():
            switch.add_case(ir.Constant(b.integer, block), begin := builder.append_basic_block())
            builder.position_at_end(begin)
            _build_block(b, panel, rows, *of_block)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 13), generate


_BLOCK_BYTES = np.array([panel.block_bytes for panel in FORMATS])
_FACTOR_BYTES = np.array([panel.factor_bytes for panel in FORMATS])
_END_BYTES = np.array([panel.head_bytes + panel.end_bytes for panel in FORMATS])
_OPENED_BYTES = np.array(
    [OPENED_BYTES if isinstance(panel, PackedPanel) else EIGHT_BIT.block_bytes for panel in FORMATS]
)
_IS_CENTRED = np.array([panel.is_centred for panel in FORMATS])


def opened_bytes(num_inputs: int) -> int:
    """Return the bytes of an opened panel."""
    return num_inputs // GROUP * OPENED_BYTES


def record_bytes(num_rows: int, num_inputs: int) -> int:
    """Return the bytes of the records of all rows and of the copy that may fill the last block."""
    return (num_rows + 1) * (num_inputs // GROUP * ROW_BYTES)


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
def chunk_groups(rows, groups):
    """Return the groups of a chunk."""
    return groups if rows * groups * ROW_BYTES <= NEAR_BYTES else min(groups, CHUNK_GROUPS)


@njit(inline="always")
def quantize_row(source, rows, groups, records, row, size, place):
    """Write a row's records, of each chunk behind those of the chunk before.

    It is the row at `place` of the block of `size` rows that begins with `row`, if the records have `rows` rows.
    """
    step = size * ROW_BYTES
    chunk = chunk_groups(rows, groups)
    for first in range(0, groups, chunk):
        last = min(first + chunk, groups) - 1
        record = records + (rows * first + row * (last + 1 - first) + place) * ROW_BYTES
        for group in range(first, last + 1, 2):
            other = min(group + 1, last)
            quantize_two_groups(
                source + group * GROUP * 4,
                source + other * GROUP * 4,
                record + (group - first) * step,
                record + (other - first) * step,
            )


@njit(inline="always")
def record_rows(rows):
    """Return the rows of the records: the copy too that may fill the last block."""
    return rows + (rows % 4 == 3)


@njit(inline="always")
def quantize_rows(source, rows, groups, records, part, parts):
    """Write the records of part `part` of `parts` of the rows."""
    first, last = rows * part // parts, rows * (part + 1) // parts
    total = record_rows(rows)
    row = 0
    while row < last:
        size = block_rows(rows - row)
        for i in range(max(first - row, 0), min(size, last - row)):
            quantize_row(source + (row + i) * groups * GROUP * 4, total, groups, records, row, size, i)
        if row + size > rows and last == rows:
            quantize_row(source + (rows - 1) * groups * GROUP * 4, total, groups, records, row, size, size - 1)
        row += size


@njit(**OPTIONS)
def quantize_groups(a, thread, part, parts):
    """Write the records of x for all threads. a: rows, inputs, x (float32), records."""
    quantize_rows(a[2], a[0], a[1] // GROUP, a[3], part, parts)


@njit(**OPTIONS)
def multiply(a, thread, part, parts, is_first):
    """Compute out = x times the transposed weight; a part is a range of panels.

    a: rows, outputs, inputs, x (float32), panels, out (float32), scratch, bytes of scratch a thread, number of the
    panels' format, records of x, or 0: each thread then writes its own with the first part it takes, outputs between
    two rows of out
    """
    rows, outputs, inputs, form = a[0], a[1], a[2], a[8]
    groups, panels = inputs // GROUP, outputs // PANEL
    near = a[6] + thread * a[7]
    records, stride = a[9], a[10]
    if records == 0:
        records = near + groups * OPENED_BYTES
        if is_first:
            quantize_rows(a[3], rows, groups, records, 0, 1)
    panel_bytes = groups * _BLOCK_BYTES[form] + groups // SUPERBLOCK * _FACTOR_BYTES[form] + _END_BYTES[form]
    total, blocks = record_rows(rows), num_blocks(rows)
    chunk = chunk_groups(total, groups)
    for panel in range(panels * part // parts, panels * (part + 1) // parts):
        weights = a[4] + panel * panel_bytes
        for first in range(0, groups, chunk):
            end = min(first + chunk, groups)
            opened = near - first * _OPENED_BYTES[form]
            # Bytes of chunks are about in proportion: that a few lines are prefetched early or late does not matter.
            lines = -(-panel_bytes // (groups * LINE * blocks))
            ahead = weights + (AHEAD_BYTES if blocks == 1 else panel_bytes * end // groups)
            row = 0
            while row < rows:
                size = block_rows(rows - row)
                kept = min(size, rows - row)
                record = records + (total * first + row * (end - first)) * ROW_BYTES
                out = a[5] + (row * stride + panel * PANEL) * 4
                # Eight rows of a centred panel are two passes, of which the second reads what the first has opened.
                source = weights
                if form == EIGHT or size < 8 or (rows < OPENED_FROM and not _IS_CENTRED[form]):
                    reader = form
                elif row == 0:
                    reader = form + _NUM_FORMATS
                else:
                    reader, source = _OPENED[form], opened
                _multiply_block(
                    reader, size, source, opened, record, first, end, groups, out, stride * 4, ahead, lines, kept
                )
                ahead += (end - first) * lines * LINE
                row += size
