"""The records of rows that are multiplied by integer weights: eight-bit levels by blocks of rows and groups of inputs.

Rows are cut into blocks of 8, 4, 2 and 1. Three or seven remaining rows make a block with a copy of the last row, whose
results are not stored: another block would read the weights again. Many rows have chunks of groups.

A block has a record per group, one after another, so that it reads one stream. It holds ROW_BYTES of each row, as
`quantize_two_groups` writes them. Behind the records of all blocks come the sums of the rows' inputs: by block, pair of
groups and row, both sums of a pair in one word. The first float sum of each row ends them: 0, or NaN if an input is not
finite.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.kernels.cpu.integer_vectors import GROUP, MOST_STEP, ROW_BYTES, quantize_two_groups
from engine.kernels.cpu.primitives import floats
from engine.kernels.cpu.tile_product import TILES_FROM, round_rows

MAX_BLOCK_ROWS = 8
OPENED_FROM = 2 * MAX_BLOCK_ROWS
"""Rows, a copy included, from which panels are cut into chunks and opened once instead of in each block."""
CHUNK_GROUPS = 48
"""Groups of a chunk: whole superblocks and pairs. Fewer would leave more sums in the results, more would leave the
caches."""


def record_bytes(num_rows: int, num_inputs: int) -> int:
    """Return the bytes of the records of all rows and of the copy that may fill the last block."""
    num_groups = num_inputs // GROUP
    return (num_rows + 1) * (num_groups * ROW_BYTES + (num_groups + 1) // 2 * 4 + 4)


@njit(inline="always")
def num_pairs(groups):
    """Return the pairs that groups make, the last of which may have one."""
    return (groups + 1) // 2


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
    return min(groups, CHUNK_GROUPS) if rows >= OPENED_FROM else groups


@njit(inline="always")
def totals_place(records, rows, groups):
    """Return where the sums of inputs begin, behind the records."""
    return records + rows * groups * ROW_BYTES


@njit(inline="always")
def starts_place(records, rows, groups):
    """Return where the first float sums begin."""
    return totals_place(records, rows, groups) + rows * num_pairs(groups) * 4


@njit(inline="always")
def quantize_row(source, rows, groups, records, row, size, place):
    """Write a row's records, of each chunk behind those of the chunk before, its sums and its first float sum.

    It is the row at `place` of the block of `size` rows that begins with `row`. `rows`: of all records.
    """
    step = size * ROW_BYTES
    chunk = chunk_groups(rows, groups)
    totals = totals_place(records, rows, groups) + (row * num_pairs(groups) + place) * 4
    largest = np.int64(0)
    for first in range(0, groups, chunk):
        last = min(first + chunk, groups) - 1
        record = records + (rows * first + row * (last + 1 - first) + place) * ROW_BYTES
        for group in range(first, last + 1, 2):
            other = min(group + 1, last)
            bits = quantize_two_groups(
                source + group * GROUP * 4,
                source + other * GROUP * 4,
                record + (group - first) * step,
                record + (other - first) * step,
                totals + group // 2 * size * 4,
                np.int64(-1 if other > group else 0),
            )
            largest = max(largest, bits)
    start = floats(starts_place(records, rows, groups) + (row + place) * 4, 1)
    start[0] = np.float32(np.nan if largest > MOST_STEP else 0.0)


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


def takes_tiles(rows: int, may_take_tiles: int) -> bool:
    """Return True if a product of so many rows takes tiles."""
    return may_take_tiles != 0 and rows >= TILES_FROM


_takes_tiles = njit(inline="always")(takes_tiles)


@njit(inline="always")
def write_rows(source, rows, groups, records, may_take_tiles, part, parts):
    """Write the records of part `part` of `parts` of the rows, or in their place the tiles."""
    if _takes_tiles(rows, may_take_tiles):
        round_rows(source, rows, groups, records, part, parts)
    else:
        quantize_rows(source, rows, groups, records, part, parts)


def quantize_groups(a, thread, part, parts):
    """Write the records of x for all threads, or its tiles. a: rows, inputs, x (float32), records, 1 if many rows
    may take tiles.
    """
    write_rows(a[2], a[0], a[1] // GROUP, a[3], a[4], part, parts)
