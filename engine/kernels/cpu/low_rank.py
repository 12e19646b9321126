"""Products with pairs of low-rank matrices, each for some of the rows (LoRA, https://arxiv.org/abs/2106.09685).

y += (x A^T) B^T, where a row's A and B are those of its adapter. `shrink` computes x A^T, `expand` adds the rest. Rows
of one adapter are cut into tiles, which read a matrix once. Every row's additions have one order, whatever is beside
it.

    tiles     the number of tiles, then for each its adapter's index, its first member, and its members
    members   row numbers, those of a tile one after another
    table     an entry of ENTRY integers for each adapter: the address of A, its rank in LANES, and for each of PARTS
              ranges of outputs the address of B, its first rank and its rank (0: these outputs are not changed)

    A   (rank / LANES, K, LANES), its last ranks filled up with zeros; float32 or bfloat16, as B
    B   for each part (outputs / PANEL, rank, PANEL), its last outputs filled up with zeros
"""

from __future__ import annotations

from numba import njit

from engine.kernels.cpu.integer_vectors import LANES
from engine.kernels.cpu.primitives import OPTIONS, floats, integers
from engine.kernels.cpu.vectors import HEAD_STEP, score_block, sum_block

PANEL = HEAD_STEP
"""Outputs that are summed at once."""
TILE_ROWS = 12
PARTS = 3
"""Ranges of outputs: queries, keys and values are the most that are stacked."""
ENTRY = 2 + 3 * PARTS
ADDRESSES = (0, *range(2, ENTRY, 3))
"""Which integers of an entry are addresses."""
TILE = 3
"""Integers of a tile."""
INPUTS_STEP = 4
"""The number of inputs is a multiple of this."""


def scratch_floats(num_inputs: int) -> int:
    """Return a thread's scratch floats: the inputs of a tile, or a panel of its results."""
    return TILE_ROWS * max(num_inputs, PANEL)


@njit(inline="always")
def _row_bytes(is_half, size):
    return size * 2 if is_half else size * 4


@njit(**OPTIONS)
def _adjacent_rows(x, members, num_inputs, scratch):
    """Return the address of a tile's inputs, one row after another: where they are, or copied."""
    count = len(members)
    if members[count - 1] - members[0] == count - 1:
        return x + members[0] * num_inputs * 4
    for number in range(count):
        source, target = floats(x + members[number] * num_inputs * 4, num_inputs), scratch + number * num_inputs * 4
        copied = floats(target, num_inputs)
        for i in range(num_inputs):
            copied[i] = source[i]
    return scratch


def shrink(a, thread, part, parts):
    """Compute out = x A^T for the members of tiles; a part is a range of vectors of ranks of tiles.

    a: rows, tiles, members, table, A is half, floats of a row of out, out (float32, a row for each member), inputs, x
    (float32), scratch, its bytes a thread
    """
    is_half, width, num_inputs = a[4] != 0, a[5], a[7]
    scratch = a[9] + thread * a[10]
    num_tiles = integers(a[1], 1)[0]
    tiles = integers(a[1] + 8, TILE * num_tiles)
    num_units = 0
    for tile in range(num_tiles):
        num_units += integers(a[3] + tiles[TILE * tile] * ENTRY * 8, ENTRY)[1]
    first_unit, end_unit = num_units * part // parts, num_units * (part + 1) // parts
    before = 0
    for tile in range(num_tiles):
        entry = integers(a[3] + tiles[TILE * tile] * ENTRY * 8, ENTRY)
        first, end = max(first_unit - before, 0), min(end_unit - before, entry[1])
        before += entry[1]
        if first >= end:
            continue
        place, count = tiles[TILE * tile + 1], tiles[TILE * tile + 2]
        x = _adjacent_rows(a[8], integers(a[2] + place * 8, count), num_inputs, scratch)
        for block in range(first, end):
            weights = entry[0] + block * _row_bytes(is_half, num_inputs * LANES)
            out = a[6] + (place * width + block * LANES) * 4
            score_block(x, count, weights, is_half, out, width * 4, num_inputs)


@njit(inline="always")
def _num_panels(a, entry, number):
    """Return the panels of a part of the outputs, 0 if the adapter leaves them as they are."""
    return (a[13 + 2 * number] + PANEL - 1) // PANEL if entry[4 + 3 * number] > 0 else 0


def expand(a, thread, part, parts):
    """Compute y += t B^T for the members of tiles; a part is a range of panels of tiles.

    a: rows, tiles, members, table, B is half, floats of a row of t, t (float32, a row for each member), floats of a row
    of y, y (float32), scratch, its bytes a thread, parts of the outputs, and for each its first output and its outputs
    """
    is_half, width, num_outputs, num_parts = a[4] != 0, a[5], a[7], a[11]
    scratch = a[9] + thread * a[10]
    num_tiles = integers(a[1], 1)[0]
    tiles = integers(a[1] + 8, TILE * num_tiles)
    num_units = 0
    for tile in range(num_tiles):
        entry = integers(a[3] + tiles[TILE * tile] * ENTRY * 8, ENTRY)
        for number in range(num_parts):
            num_units += _num_panels(a, entry, number)
    first_unit, end_unit = num_units * part // parts, num_units * (part + 1) // parts
    before = 0
    for tile in range(num_tiles):
        entry = integers(a[3] + tiles[TILE * tile] * ENTRY * 8, ENTRY)
        place, count = tiles[TILE * tile + 1], tiles[TILE * tile + 2]
        members = integers(a[2] + place * 8, count)
        for number in range(num_parts):
            panels = _num_panels(a, entry, number)
            first, end = max(first_unit - before, 0), min(end_unit - before, panels)
            before += panels
            first_rank, rank = entry[3 + 3 * number], entry[4 + 3 * number]
            t = a[6] + (place * width + first_rank) * 4
            panel_bytes = _row_bytes(is_half, PANEL)
            for panel in range(first, end):
                sums = floats(scratch, count * PANEL)
                for i in range(count * PANEL):
                    sums[i] = 0.0
                weights = entry[2 + 3 * number] + panel * rank * panel_bytes
                sum_block(t, count, width * 4, weights, is_half, panel_bytes, rank, scratch, PANEL * 4)
                start = a[12 + 2 * number] + panel * PANEL
                size = min(PANEL, a[13 + 2 * number] - panel * PANEL)
                for member in range(count):
                    y = floats(a[8] + (members[member] * num_outputs + start) * 4, size)
                    own = floats(scratch + member * PANEL * 4, size)
                    for i in range(size):
                        y[i] += own[i]
