"""Products of many rows with integer weights in tiles of bfloat16, where the processor has them (Intel AMX).

A tile has 16 rows of 64 bytes. One instruction multiplies 16 rows of a group of 32 inputs by 16 outputs and adds to 256
float sums, which stay in a tile from the first group of a chunk to the last. Rows are rounded to bfloat16 once for all
panels (panels.py). A chunk of a panel is opened to bfloat16 and multiplied by all rows. The rows of a chunk stay in the
second-level cache while TILE_PANELS panels are multiplied by them.

Tiles of eight bits would be slower: each sum of a group of 32 must leave its tile to be scaled (docs/decisions/0023).

Every row is computed by itself in a fixed order: its result is the same in any batch of as many rows as tiles take.

Instructions: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from engine.kernels.cpu.integer_vectors import (
    BFLOATS,
    BYTE,
    CHUNKS,
    FLOATS,
    GROUP,
    LANES,
    PANEL,
    VECTORS,
    WORDS,
    VectorBuilder,
)
from engine.kernels.cpu.panels import FORMATS, EightBitPanel, PackedPanel
from engine.kernels.cpu.primitives import OPTIONS, integers

TILES_FROM = 33
"""Rows from which a product takes tiles. To open a panel costs as much as VNNI's products with some 25 rows."""
TILE_ROWS = 16
TILE_GROUPS = 48
"""Groups of a chunk: what is opened of a panel takes 96 KiB, the rows of a large step 1.5 MiB."""
TILE_BYTES = 64 * TILE_ROWS
TILE_PANELS = 4
"""Panels that are multiplied by a chunk of the rows before the next: their results stay in the caches."""
CONFIGURATION_BYTES = 64
SUMS, INPUTS, WEIGHTS = 0, 4, 6
"""The first tiles of sums (of two blocks of rows and two vectors), inputs (of two blocks), and weights (vectors)."""
_PALETTE = 1
_RAISE = 256.0
"""A level is opened as the float 256 + level, whose bits are those of 256 and the level's at bit 15."""
_RAISED_BITS, _LEVEL_BIT = 0x43800000, 15


class Tiles:
    """The instructions of tiles. Addresses are integers; a tile is named by its number."""

    def __init__(self, b: VectorBuilder) -> None:
        self._b = b

    def configure(self, address: Any) -> None:
        """Set the sizes of all tiles from CONFIGURATION_BYTES, and clear them."""
        self._call("ldtilecfg", self._at(address))

    def release(self) -> None:
        """End the use of tiles, which the system else saves at every change of threads."""
        self._call("tilerelease")

    def zero(self, tile: int) -> None:
        self._call("tilezero", self._tile(tile))

    def load(self, tile: int, address: Any, stride: Any) -> None:
        """Load rows that are `stride` bytes apart."""
        self._call("tileloadd64", self._tile(tile), self._at(address), stride)

    def store(self, tile: int, address: Any, stride: Any) -> None:
        self._call("tilestored64", self._tile(tile), self._at(address), stride)

    def multiply(self, sums: int, inputs: int, weights: int) -> None:
        """Add the products of pairs of bfloat16 to float sums."""
        self._call("tdpbf16ps", *map(self._tile, (sums, inputs, weights)))

    def _tile(self, number: int) -> Any:
        return ir.Constant(BYTE, number)

    def _at(self, address: Any) -> Any:
        return self._b.ir.inttoptr(address, BYTE.as_pointer())

    def _call(self, name: str, *arguments: Any) -> None:
        self._b.call(f"llvm.x86.{name}", ir.VoidType(), *arguments)


@intrinsic
def _configure(typingctx, address):
    """Use tiles as described at an address."""

    def generate(context, builder, signature, arguments):
        Tiles(VectorBuilder(builder)).configure(arguments[0])
        return context.get_dummy_value()

    return types.none(address), generate


@intrinsic
def _release(typingctx):
    """End the use of tiles."""

    def generate(context, builder, signature, arguments):
        Tiles(VectorBuilder(builder)).release()
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def _round_group(typingctx, source, target):
    """Write 32 floats as bfloat16."""

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        source, target = arguments
        for part in range(2):
            rounded = b.narrowed(b.load(FLOATS, b.at(source, 64 * part), 4))
            b.store(builder.trunc(rounded, BFLOATS), b.at(target, 32 * part), 32)
        return context.get_dummy_value()

    return types.none(source, target), generate


@intrinsic
def _open(typingctx, form, weights, opened, first, end, groups):
    """Write groups `first` to `end`, of `groups` in the panel at `weights`, as tiles: of each group one a vector.

    Row p of a tile holds inputs 2p and 2p + 1 of its outputs, in pairs.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        form, *of_chunk = arguments
        end = builder.append_basic_block()
        switch = builder.switch(form, end)
        for number, panel in enumerate(FORMATS):
            switch.add_case(ir.Constant(b.integer, number), begin := builder.append_basic_block())
            builder.position_at_end(begin)
            _build_opening(b, panel, *of_chunk)
            builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 6), generate


def _build_opening(
    b: VectorBuilder, panel: PackedPanel | EightBitPanel, weights: Any, opened: Any, first: Any, end: Any, groups: Any
) -> None:
    builder = b.ir
    with b.loop(builder.sub(end, first)) as number:
        place = panel.place(b, weights, ir.Constant(b.integer, 0), builder.add(first, number))
        target = builder.add(opened, b.times(number, VECTORS * TILE_BYTES))
        for vector in range(VECTORS):
            lines = [panel.line(b, weights, groups, place, index, vector) for index in range(panel.num_scales)]
            lines = [(slope, b.fused(slope, b.floats(-_RAISE), start)) for slope, start in lines]
            for pair in range(CHUNKS // 2):
                for half, levels in enumerate(panel.weights(b, place, pair, vector)):
                    chunk = 2 * pair + half
                    line = lines[chunk * len(lines) // CHUNKS]
                    rows = _pairs(b, builder.bitcast(levels, WORDS), *line)
                    for row, value in enumerate(rows, 2 * chunk):
                        b.store(value, b.at(target, vector * TILE_BYTES + 64 * row), 64)


def _pairs(b: VectorBuilder, levels: Any, slope: Any, start: Any) -> list[Any]:
    """Turn four levels of sixteen outputs into bfloat16, two a lane: rounded to nearest, ties away from zero."""
    builder = b.ir
    floats = []
    for byte in range(4):
        shift = _LEVEL_BIT - 8 * byte
        moved = builder.shl(levels, b.words(shift)) if shift > 0 else builder.lshr(levels, b.words(-shift))
        raised = builder.or_(builder.and_(moved, b.words(255 << _LEVEL_BIT)), b.words(_RAISED_BITS))
        value = b.fused(builder.bitcast(raised, FLOATS), slope, start)
        floats.append(builder.add(builder.bitcast(value, WORDS), b.words(1 << 15)))
    return [
        builder.or_(builder.lshr(low, b.words(16)), builder.and_(high, b.words(-1 << 16)))
        for low, high in (floats[:2], floats[2:])
    ]


@intrinsic
def _multiply_blocks(typingctx, num_blocks, inputs, block_bytes, opened, groups, is_later, out, out_stride):
    """Multiply one or two blocks of rows by the opened groups of a chunk, and store their sums at `out`.

    The blocks' inputs begin at `inputs`, `block_bytes` apart. If `is_later`, the sums so far are read from `out`, whose
    rows are `out_stride` bytes apart.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        num_blocks, *of_blocks = arguments
        is_pair = builder.icmp_signed("==", num_blocks, ir.Constant(b.integer, 2))
        with builder.if_else(is_pair) as (two, one):
            with two:
                _build_blocks(b, 2, *of_blocks)
            with one:
                _build_blocks(b, 1, *of_blocks)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 8), generate


def _build_blocks(
    b: VectorBuilder,
    num_blocks: int,
    inputs: Any,
    block_bytes: Any,
    opened: Any,
    groups: Any,
    is_later: Any,
    out: Any,
    out_stride: Any,
) -> None:
    builder, tiles = b.ir, Tiles(b)
    line = ir.Constant(b.integer, 64)
    blocks = range(num_blocks)
    sums = {(block, vector): SUMS + VECTORS * block + vector for block in blocks for vector in range(VECTORS)}
    places = {
        (block, vector): b.at(builder.add(out, b.times(out_stride, TILE_ROWS * block)), 4 * LANES * vector)
        for block, vector in sums
    }
    with builder.if_else(builder.icmp_signed("!=", is_later, ir.Constant(b.integer, 0))) as (later, first):
        with later:
            for key, tile in sums.items():
                tiles.load(tile, places[key], out_stride)
        with first:
            for tile in sums.values():
                tiles.zero(tile)
    sources = [builder.add(inputs, b.times(block_bytes, block)) for block in blocks]
    with b.loop(groups) as group:
        weights = builder.add(opened, b.times(group, VECTORS * TILE_BYTES))
        for vector in range(VECTORS):
            tiles.load(WEIGHTS + vector, b.at(weights, vector * TILE_BYTES), line)
            for block, source in enumerate(sources):
                if not vector:
                    tiles.load(INPUTS + block, builder.add(source, b.times(group, TILE_BYTES)), line)
                tiles.multiply(sums[block, vector], INPUTS + block, WEIGHTS + vector)
    for key, tile in sums.items():
        tiles.store(tile, places[key], out_stride)


def near_bytes(groups: int) -> int:
    """Return the bytes of a configuration and an opened chunk."""
    return CONFIGURATION_BYTES + min(groups, TILE_GROUPS) * VECTORS * TILE_BYTES


def tile_input_bytes(num_rows: int, num_inputs: int) -> int:
    """Return the bytes of rows as tiles."""
    return -(-num_rows // TILE_ROWS) * (num_inputs // GROUP) * TILE_BYTES


@njit(inline="always")
def round_rows(source, rows, groups, tiles, part, parts):
    """Write part `part` of `parts` of float32 rows as tiles: of each block of TILE_ROWS those of its groups."""
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        target = tiles + row // TILE_ROWS * groups * TILE_BYTES + row % TILE_ROWS * 64
        for group in range(groups):
            _round_group(source + (row * groups + group) * GROUP * 4, target + group * TILE_BYTES)


@njit(inline="always")
def _use_tiles(address, rows):
    """Use tiles whose sums and inputs have so many rows; describe them at an address."""
    numbers = integers(address, CONFIGURATION_BYTES // 8)
    numbers[0], numbers[1] = _PALETTE, 0
    # Bytes of a row of each tile, in two bytes; then rows of each, in one.
    numbers[2] = numbers[3] = 64 * 0x0001000100010001
    numbers[4] = numbers[5] = numbers[7] = 0
    numbers[6] = rows * 0x010101010101 + (TILE_ROWS << 48) + (TILE_ROWS << 56)
    _configure(address)


@njit(**OPTIONS)
def multiply_tiles(weights, panel_bytes, form, first_panel, last_panel, groups, tiles, rows, near, out, stride):
    """Multiply all rows by panels `first_panel` to `last_panel`.

    weights: the panels, `panel_bytes` each, in format `form`   tiles: the rows, as `round_rows` writes them
    near: `near_bytes` of scratch   out: float32, rows `stride` numbers apart
    """
    opened = near + CONFIGURATION_BYTES
    whole = rows // TILE_ROWS
    block_bytes = groups * TILE_BYTES
    for begin in range(first_panel, last_panel, TILE_PANELS):
        for first in range(0, groups, TILE_GROUPS):
            end = min(first + TILE_GROUPS, groups)
            for panel in range(begin, min(begin + TILE_PANELS, last_panel)):
                _open(form, weights + panel * panel_bytes, opened, first, end, groups)
                if whole:
                    _use_tiles(near, TILE_ROWS)
                target = out + panel * PANEL * 4
                for block in range(0, whole, 2):
                    _multiply_blocks(
                        min(whole - block, 2),
                        tiles + block * block_bytes + first * TILE_BYTES,
                        block_bytes,
                        opened,
                        end - first,
                        first,
                        target + block * TILE_ROWS * stride * 4,
                        stride * 4,
                    )
                if rows % TILE_ROWS:
                    _use_tiles(near, rows % TILE_ROWS)
                    _multiply_blocks(
                        1,
                        tiles + whole * block_bytes + first * TILE_BYTES,
                        block_bytes,
                        opened,
                        end - first,
                        first,
                        target + whole * TILE_ROWS * stride * 4,
                        stride * 4,
                    )
    _release()
