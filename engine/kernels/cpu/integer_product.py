"""Products of rows with integer weights on AVX512-VNNI or AVX2: activations quantised to eight bits per row and group
of 32 inputs (row_records.py). With AMX many rows take tiles instead (tile_product.py).

Weights are cut into panels of 32 outputs (panels.py), rows into blocks of 8, 4, 2 and 1. With many rows a panel is cut
into chunks of groups, else it is one chunk. A chunk stays in the caches while all blocks are multiplied by it, and each
block prefetches a share of the next chunk. A block's 16 integer sums stay in registers for a group and are then scaled
into as many float sums, which wait in the results from one chunk to the next. AVX2 has room for four integer sums: it
takes the rows of a block in passes, and float sums wait in memory.

Processors multiply one or two vectors a cycle, and some add as many beside them. So scaling the products of a group
takes one multiplication where the panel is opened, and two elsewhere: the power of two of a row's step comes by a
subtraction, which also makes floats of the products, and its other factor by a choice among variants of the scale.

Every row is computed by itself in a fixed order: without tiles its result is the same alone and in any batch.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any, NamedTuple

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
    WORDS,
    DotSum,
    VectorBuilder,
    compiles_tiles,
    has_dots,
)
from engine.kernels.cpu.panels import (
    FORMATS,
    PAIR_BYTES,
    SUPERBLOCK,
    EightBitPanel,
    PackedPanel,
    Place,
    Record,
    opened_group_bytes,
)
from engine.kernels.cpu.primitives import OPTIONS
from engine.kernels.cpu.row_records import (
    CHUNK_GROUPS,
    MAX_BLOCK_ROWS,
    OPENED_FROM,
    block_rows,
    chunk_groups,
    num_blocks,
    num_pairs,
    record_bytes,
    record_rows,
    starts_place,
    takes_tiles,
    totals_place,
    write_rows,
)
from engine.kernels.cpu.tile_product import multiply_tiles, near_bytes, tile_input_bytes

MAX_SUMS = 16 if has_dots() else 4
"""Integer sums that stay in registers. AVX2 has half as many registers, and they are half as long."""
LINE = 64
AHEAD_BYTES = 4096
"""How far ahead a single block prefetches, one page: the hardware prefetcher stops at page ends."""


class _Block(NamedTuple):
    """The arguments of a block, as `_multiply_block` describes them."""

    weights: Any
    opened: Any
    opened_stride: Any
    minima: Any
    records: Any
    totals: Any
    starts: Any
    first_group: Any
    end_group: Any
    num_groups: Any
    out: Any
    out_stride: Any
    ahead: Any
    num_lines: Any
    num_kept: Any


def _build_block(b: VectorBuilder, panel: PackedPanel | EightBitPanel, num_rows: int, block: _Block) -> None:
    builder = b.ir
    places = [(row, vector) for row in range(num_rows) for vector in range(VECTORS)]
    targets = {
        (row, vector): b.at(builder.add(block.out, b.times(block.out_stride, row)), 4 * LANES * vector)
        for row, vector in places
    }
    for target in targets.values():
        b.prefetch(target, is_written=True)
    begins = [b.splat_float(b.at(block.starts, 4 * row)) for row in range(num_rows)]
    sums = _Sums(b, num_rows)
    for row, vector in places:
        builder.store(begins[row], sums.at(row, vector))
    is_last_kept = builder.icmp_signed("==", block.num_kept, ir.Constant(b.integer, num_rows))
    is_later = builder.icmp_signed(">", block.first_group, ir.Constant(b.integer, 0))
    with builder.if_then(is_later, likely=False):
        for (row, vector), target in targets.items():
            # There may be no memory where a copy's results would be.
            kept = (
                builder.select(is_last_kept, target, targets[num_rows - 2, vector])
                if row == num_rows - 1 > 0
                else target
            )
            builder.store(b.load(FLOATS, kept, 4), sums.at(row, vector))
    minima = _Minima(b, num_rows, block) if panel.has_minimum else None
    with b.loop(builder.sub(block.end_group, block.first_group)) as number:
        group = builder.add(block.first_group, number)
        opened = builder.add(block.opened, builder.mul(block.opened_stride, group))
        place = panel.place(b, block.weights, opened, group)
        address = builder.add(block.records, b.times(number, num_rows * ROW_BYTES))
        with b.loop(block.num_lines) as line:
            lines = builder.add(builder.mul(number, block.num_lines), line)
            b.prefetch(builder.add(block.ahead, b.times(lines, LINE)))
        _build_passes(b, panel, num_rows, address, place, sums)
        if minima is not None and not panel.is_opened:
            (minima.write if num_rows == MAX_BLOCK_ROWS else minima.add)(panel, place)
    is_end = builder.icmp_signed("==", block.end_group, block.num_groups)
    if minima is not None:
        with builder.if_then(is_end):
            minima.end(sums)
    ends = [panel.end(b, block.weights, block.num_groups, is_end, vector) for vector in range(VECTORS)]
    for row in range(num_rows):
        with builder.if_then(is_last_kept, likely=True) if row == num_rows - 1 else nullcontext():
            for vector in range(VECTORS):
                value = panel.finish(b, builder.load(sums.at(row, vector)), ends[vector])
                b.store(value, targets[row, vector], 4)


class _Sums:
    """The float sums of a block. Where rows are numbers of Python, LLVM keeps them in registers as far as they fit."""

    def __init__(self, b: VectorBuilder, num_rows: int) -> None:
        self._b = b
        self._memory = cgutils.alloca_once(b.ir, ir.ArrayType(FLOATS, num_rows * VECTORS))

    def at(self, row: Any, vector: int) -> Any:
        """Return where the sum of a row, an integer of Python or of the program, and of a vector lies."""
        b = self._b
        if isinstance(row, int):
            place = ir.Constant(b.integer, VECTORS * row + vector)
        else:
            place = b.at(b.times(row, VECTORS), vector)
        return b.ir.gep(self._memory, [_number(b, 0), place])


def _number(b: VectorBuilder, value: Any) -> Any:
    return ir.Constant(b.integer, value) if isinstance(value, int) else value


def _build_passes(
    b: VectorBuilder, panel: PackedPanel | EightBitPanel, num_rows: int, records: Any, place: Place, sums: _Sums
) -> None:
    """Multiply a group by the rows of a block, as many at once as stay in registers, and add to their sums.

    AVX2 takes many passes, and a loop of them: each by itself took 16 s more to compile.
    """
    num_sums, pass_rows = _num_sums(panel, num_rows), _pass_rows(panel, num_rows)

    def build(reader: PackedPanel | EightBitPanel, first: Any) -> None:
        b.keep_order()
        rows = [first + row if isinstance(first, int) else b.at(first, row) for row in range(pass_rows)]
        of_rows = [Record(b, b.ir.add(records, b.times(_number(b, row), ROW_BYTES))) for row in rows]
        products = _multiply_group(b, reader, dict(enumerate(of_rows)), num_sums, place)
        scales = [reader.scales(b, place, vector) for vector in range(VECTORS)]
        for number, (row, record) in enumerate(zip(rows, of_rows, strict=True)):
            for vector in range(VECTORS):
                value = b.ir.load(sums.at(row, vector))
                parts = products[number, vector]
                parts = parts if panel.is_centred or len(parts) == 1 else [b.ir.add(*parts)]
                for part, scale in zip(parts, scales[vector], strict=True):
                    value = b.fused(record.scaled(part), scale.times(record), value)
                b.ir.store(value, sums.at(row, vector))

    first_of_loop = 0
    if has_dots() or panel.later != panel:
        build(panel, 0)
        first_of_loop = pass_rows
    if has_dots():
        for first in range(first_of_loop, num_rows, pass_rows):
            build(panel.later, first)
    elif first_of_loop < num_rows:
        with b.loop(_number(b, num_rows - first_of_loop), step=pass_rows) as number:
            build(panel.later, b.ir.add(number, _number(b, first_of_loop)))


def _num_sums(panel: PackedPanel | EightBitPanel, num_rows: int) -> int:
    """Return how many integer sums each row and vector has.

    A dot product waits for the sum that it adds to. With AVX2 only the addition does.
    """
    return 2 if panel.is_centred or (has_dots() and num_rows < MAX_BLOCK_ROWS) else 1


def _pass_rows(panel: PackedPanel | EightBitPanel, num_rows: int) -> int:
    """Return how many rows of a block are multiplied at once."""
    return min(num_rows, MAX_SUMS // _num_sums(panel, num_rows) // VECTORS)


def _multiply_group(
    b: VectorBuilder,
    panel: PackedPanel | EightBitPanel,
    records: dict[int, Record],
    num_sums: int,
    place: Any,
) -> dict[tuple[int, int], list[Any]]:
    """Return the integer products of one group by row and vector, in one or two sums.

    Two are of the first and last 16 inputs if the panel is centred, else any, so that additions overlap.
    """
    sums: dict[tuple[int, int], list[DotSum]] = {}
    for row, record in records.items():
        begins = panel.starts(b, record, num_sums)
        sums |= {(row, vector): [DotSum(b, begin, panel.most) for begin in begins] for vector in range(VECTORS)}
    for pairs in [(0, 2), (1, 3)] if panel.is_centred else [(pair,) for pair in range(CHUNKS // 2)]:
        weights = {pair: [panel.weights(b, place, pair, vector) for vector in range(VECTORS)] for pair in pairs}
        for half, pair in product(range(2), pairs):
            number = pairs.index(pair) if panel.is_centred else half % num_sums
            for row, record in records.items():
                four = b.ir.bitcast(b.splat(record.number(NUMBERS + 2 * pair + half)), BYTES64)
                for vector in range(VECTORS):
                    sums[row, vector][number].add(weights[pair][vector][half], four)
    return {place: [total.total() for total in of_place] for place, of_place in sums.items()}


class _Minima:
    """The products of pairs: of the rests of weights (panels.py) and of the sums of a row's inputs.

    If there is a block of MAX_BLOCK_ROWS, the first one writes the pairs of all groups to `block.minima`. Every block
    reads them there and multiplies them after its last group. Otherwise `block.minima` is 0: a block multiplies each
    pair when it has both groups. The order is the same.
    """

    def __init__(self, b: VectorBuilder, num_rows: int, block: _Block) -> None:
        self._b = b
        self._num_rows = num_rows
        self._block = block
        places = [(row, vector) for row in range(num_rows) for vector in range(VECTORS)]
        self._sums = {place: cgutils.alloca_once_value(b.ir, b.floats(0.0)) for place in places}
        self._first = [cgutils.alloca_once_value(b.ir, b.words(0)) for _ in range(VECTORS)]
        """The lower halves of a pair's lanes."""
        self._is_alone = b.ir.icmp_signed("==", block.minima, ir.Constant(b.integer, 0))

    def write(self, panel: PackedPanel, place: Place) -> None:
        """Write a group's half of its pairs."""
        b, builder = self._b, self._b.ir
        is_second = builder.and_(place.group, ir.Constant(b.integer, 1))
        at = builder.add(self._block.minima, b.times(self._pair(place.group), PAIR_BYTES))
        bits = b.splat(builder.trunc(b.times(is_second, 16), WORD))
        kept = b.splat(builder.trunc(b.times(is_second, 0xFFFF), WORD))
        for vector in range(VECTORS):
            target = b.at(at, 4 * LANES * vector)
            half = builder.shl(panel.rest(b, place, vector), bits)
            b.store(builder.or_(builder.and_(b.load(WORDS, target, 64), kept), half), target, 64)

    def add(self, panel: PackedPanel, place: Place) -> None:
        """Keep a group's half of its pairs, or multiply them if they are whole; do nothing if they are written."""
        b, builder = self._b, self._b.ir
        is_second = builder.trunc(place.group, ir.IntType(1))
        with builder.if_then(self._is_alone):
            halves = [panel.rest(b, place, vector) for vector in range(VECTORS)]
            with builder.if_else(is_second) as (second, first):
                with second:
                    highs = [builder.shl(half, b.words(16)) for half in halves]
                    firsts = [builder.load(held) for held in self._first]
                    self._multiply(self._pair(place.group), list(map(builder.or_, firsts, highs)))
                with first:
                    for held, half in zip(self._first, halves, strict=True):
                        builder.store(half, held)

    def end(self, sums: _Sums) -> None:
        """Add all to the sums of a block, after the last group."""
        b, builder = self._b, self._b.ir
        num_groups = self._block.num_groups
        if self._num_rows < MAX_BLOCK_ROWS:
            is_odd = builder.trunc(num_groups, ir.IntType(1))
            with builder.if_then(builder.and_(self._is_alone, is_odd)):
                self._multiply(self._pair(num_groups), [builder.load(held) for held in self._first])
        with builder.if_then(builder.not_(self._is_alone)):
            num_pairs = self._pair(builder.add(num_groups, ir.Constant(b.integer, 1)))
            with b.loop(num_pairs) as pair:
                at = builder.add(self._block.minima, b.times(pair, PAIR_BYTES))
                self._multiply(pair, [b.load(WORDS, b.at(at, 4 * LANES * vector), 64) for vector in range(VECTORS)])
        for place, total in self._sums.items():
            at = sums.at(*place)
            builder.store(builder.fadd(builder.load(at), builder.load(total)), at)

    def _pair(self, group: Any) -> Any:
        return self._b.ir.lshr(group, ir.Constant(self._b.integer, 1))

    def _multiply(self, pair: Any, pairs: list[Any]) -> None:
        b, builder = self._b, self._b.ir
        at = builder.add(self._block.totals, b.times(pair, 4 * self._num_rows))
        for row in range(self._num_rows):
            totals = b.splat(b.load(WORD, b.at(at, 4 * row), 4))
            for vector, halves in enumerate(pairs):
                held = self._sums[row, vector]
                builder.store(b.dot_pairs(builder.load(held), totals, halves), held)


def _block_function(module: ir.Module, number: int, panel: PackedPanel | EightBitPanel, num_rows: int) -> ir.Function:
    """Add a function for a block: the compiler takes much longer for one with all of them."""
    name = f"lightcone_multiply_block_{number}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(_Block._fields)), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    _build_block(VectorBuilder(builder), panel, num_rows, _Block(*function.args))
    builder.ret_void()
    return function


_NUM_FORMATS = len(FORMATS)
_READERS = (
    *FORMATS,
    *(panel.opening for panel in FORMATS),
    *dict.fromkeys(panel.opened for panel in FORMATS),
)
"""Readers of panels: as they are by format, the same opening them, and of opened ones."""
_OPENED = np.array([2 * _NUM_FORMATS + _READERS[2 * _NUM_FORMATS :].index(panel.opened) for panel in FORMATS])
_SIZE_BITS = 4
_BLOCKS = {
    number << _SIZE_BITS | rows: (reader.in_passes if _pass_rows(reader, rows) < rows else reader, rows)
    for number, reader in enumerate(FORMATS)
    for rows in (8, 4, 2, 1)
} | {
    number << _SIZE_BITS | MAX_BLOCK_ROWS: (reader, MAX_BLOCK_ROWS)
    for number, reader in enumerate(_READERS[_NUM_FORMATS:], _NUM_FORMATS)
}
"""The blocks that are compiled: reader and number of rows."""


@intrinsic
def _multiply_block(
    typingctx,
    reader,
    num_rows,
    weights,
    opened,
    opened_stride,
    minima,
    records,
    totals,
    starts,
    first,
    end,
    groups,
    out,
    out_stride,
    ahead,
    lines,
    kept,
):
    """Multiply `num_rows` rows by a chunk of a panel as a reader reads it.

    The chunk is groups `first` to `end` of `groups`. The panel begins at `weights` and, opened, at `opened`, where its
    groups are `opened_stride` bytes apart, or all in one place if that is 0. `minima` is where the pairs of its minima
    begin, or 0. `records` is where those of the chunk begin, `totals` and `starts` where those of the block do. The
    first `kept` rows of `out` are stored: all, or all but the last. If `first` is not 0 their sums so far are read from
    there. Rows of `out` are `out_stride` bytes apart. Each group prefetches `lines` cache lines from `ahead` on.
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
            builder.call(_block_function(builder.module, block, panel, rows), of_block)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 17), generate


_BLOCK_BYTES = np.array([panel.block_bytes for panel in FORMATS])
_FACTOR_BYTES = np.array([panel.factor_bytes for panel in FORMATS])
_END_BYTES = np.array([panel.head_bytes + panel.end_bytes for panel in FORMATS])
_OPENED_BYTES = np.array([opened_group_bytes(panel.num_scales) for panel in FORMATS])
_MOST_OPENED_BYTES = int(_OPENED_BYTES.max())


_near_bytes = njit(inline="always")(near_bytes)
_takes_tiles = njit(inline="always")(takes_tiles)


def records_offset(groups: int) -> int:
    """Return where the records begin in a thread's scratch: behind an opened chunk and the pairs of minima, or behind
    what products in tiles have there."""
    opened = min(groups, CHUNK_GROUPS) * _MOST_OPENED_BYTES + (groups + 1) // 2 * PAIR_BYTES
    return max(opened, _near_bytes(groups))


_records_offset = njit(inline="always")(records_offset)


def scratch_bytes(num_rows: int, num_inputs: int, may_take_tiles: bool) -> int:
    """Return the scratch bytes of a thread for up to `num_rows`: as `records_offset` says, then records or tiles."""
    most = record_bytes(num_rows, num_inputs)
    if takes_tiles(num_rows, may_take_tiles):
        most = max(most, tile_input_bytes(num_rows, num_inputs))
    return records_offset(num_inputs // GROUP) + most


@njit(**OPTIONS)
def _no_tiles(weights, panel_bytes, form, first_panel, last_panel, groups, tiles, rows, near, out, stride):
    """Stand in for `multiply_tiles` where the processor has none; it is never called."""


_multiply_tiles = multiply_tiles if compiles_tiles() else _no_tiles


def multiply(a, thread, part, parts, is_first):
    """Compute out = x times the transposed weight; a part is a range of panels.

    a: rows, outputs, inputs, x (float32), panels, out (float32), scratch, bytes of scratch a thread, number of the
    panels' format, records of x, or 0: each thread then writes its own with the first part it takes, outputs between
    two rows of out, 1 if many rows may take tiles
    """
    rows, outputs, inputs, form = a[0], a[1], a[2], a[8]
    groups, panels = inputs // GROUP, outputs // PANEL
    near = a[6] + thread * a[7]
    own = near + _records_offset(groups)
    pairs = own - num_pairs(groups) * PAIR_BYTES
    records, stride = a[9], a[10]
    if records == 0:
        records = own
        if is_first:
            write_rows(a[3], rows, groups, records, a[11], 0, 1)
    panel_bytes = groups * _BLOCK_BYTES[form] + groups // SUPERBLOCK * _FACTOR_BYTES[form] + _END_BYTES[form]
    first_panel, last_panel = panels * part // parts, panels * (part + 1) // parts
    if _takes_tiles(rows, a[11]):
        _multiply_tiles(a[4], panel_bytes, form, first_panel, last_panel, groups, records, rows, near, a[5], stride)
        return
    total, blocks = record_rows(rows), num_blocks(rows)
    chunk = chunk_groups(total, groups)
    opens = total >= OPENED_FROM
    opened_stride = _OPENED_BYTES[form] if opens else 0
    for panel in range(first_panel, last_panel):
        weights = a[4] + panel * panel_bytes
        for first in range(0, groups, chunk):
            end = min(first + chunk, groups)
            # Bytes of chunks are about in proportion: that a few lines are prefetched early or late does not matter.
            lines = -(-panel_bytes // (groups * LINE * blocks))
            ahead = weights + (AHEAD_BYTES if blocks == 1 else panel_bytes * end // groups)
            row = 0
            while row < rows:
                size = block_rows(rows - row)
                reader = form
                if opens and size == 8:
                    reader = _OPENED[form] if row > 0 else form + _NUM_FORMATS
                _multiply_block(
                    reader,
                    size,
                    weights,
                    near - first * opened_stride,
                    opened_stride,
                    pairs if total >= MAX_BLOCK_ROWS else 0,  # then the first block has so many rows
                    records + (total * first + row * (end - first)) * ROW_BYTES,
                    totals_place(records, total, groups) + row * num_pairs(groups) * 4,
                    starts_place(records, total, groups) + row * 4,
                    first,
                    end,
                    groups,
                    a[5] + (row * stride + panel * PANEL) * 4,
                    stride * 4,
                    ahead,
                    lines,
                    min(size, rows - row),
                )
                ahead += (end - first) * lines * LINE
                row += size
