"""The layouts of integer weights for integer_product.py. A panel is 32 outputs; inputs are in groups of 32.

Eight bits: each group takes sixteen lines of 64 bytes. Line 2c + v holds chunk c of vector v (16 outputs), and its byte
4n + j is input 4c + j of output n, plus 128. The 32 shares of the group follow, in half precision, and at the panel's
end the 32 scales, in float32. w = scale * share * q. y = scale * (sum over groups of share * xs * (q . x8)).

Four, five or six bits (q), with two numbers per output and group: eight lines of 64 bytes hold the low four bits, then
two lines for each further bit, then the numbers. Line 2p + v belongs to vector v; its byte 4n + j holds inputs 8p + j
(low nibble) and 8p + 4 + j (high) of output n. Byte 4n + j of a line of further bits holds those of inputs j, 4 + j, …,
the first lowest; lines alternate between the vectors. The numbers are, as the file has them:

    factors  numbers (32 of each)                                      w
    0        scale, minimum: half precision                            scale * q + minimum
    2        scale, minimum: unsigned bytes                            factor0 * scale * q + factor1 * minimum
    1        scales of the first and last 16 inputs: signed bytes      factor * scale * (q - 2^(bits - 1))

Factors are in half precision, 32 of each, for every SUPERBLOCK groups, before these. With x about xs * x8, a group adds
scale * xs * (q . x8) + minimum * xs * sum(x8), as in llama.cpp's products (ggml, MIT).

Four bits whose weights come from a table: a line of 64 bytes holds its 16 bytes four times, plus 128. Each group takes
eight lines of codes, laid as low four bits above, and its 32 shares; the 32 scales end the panel, as in eight bits.
w = scale * share * table[code].

An opened panel holds a byte for each weight, and the numbers times their factors in float32. One with a table becomes a
panel of eight bits. With many rows, the first block writes it to its thread's scratch for the other blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from engine.kernels.cpu.integer_vectors import (
    BYTES16,
    BYTES64,
    CHUNKS,
    FLOATS,
    HALVES,
    LANES,
    PANEL,
    START_BITS,
    VECTORS,
    WORD,
    WORDS,
    VectorBuilder,
)

SUPERBLOCK = 8
"""Groups that share their factors."""
_NIBBLE_BYTES = CHUNKS // 2 * VECTORS * 64
_BYTES = CHUNKS * VECTORS * 64
_TABLE_BYTES = 64
_NUMBERS = 2
OPENED_BYTES = _BYTES + _NUMBERS * 4 * PANEL
"""Bytes of a group of an opened panel."""


class Place(NamedTuple):
    """The addresses of a group: its factors, its block, and the same opened. table: the panel's, as 64 bytes."""

    factors: Any
    block: Any
    opened: Any
    table: Any = None


@dataclass(frozen=True)
class EightBitPanel:
    """A reader of eight-bit panels, with the methods of PackedPanel."""

    block_bytes = _BYTES + 2 * PANEL
    factor_bytes = 0
    head_bytes = 0
    end_bytes = 4 * PANEL
    is_centred = False

    def starts(self, b: VectorBuilder, numbers: list[Any], num_sums: int) -> list[Any]:
        """Return the initial integer sums of a row: the float MAGIC, less what the 128 added to each weight gives."""
        return [b.splat(b.load(WORD, numbers[2], 4)), *[ir.Constant(WORDS, [0] * LANES)] * (num_sums - 1)]

    @property
    def later(self) -> EightBitPanel:
        return self

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        return Place(None, b.ir.add(weights, b.times(group, self.block_bytes)), None)

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place.block, pair, vector))

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[Any, ...]:
        return (b.ir.fpext(self._shares(b, place, vector), FLOATS),)

    def _shares(self, b: VectorBuilder, place: Place, vector: int) -> Any:
        return b.load(HALVES, b.at(place.block, self.block_bytes - 2 * PANEL + 2 * LANES * vector), 32)

    def add(self, b: VectorBuilder, value: Any, products: list[Any], scales: tuple[Any, ...], row: list[Any]) -> Any:
        return b.fused(_scaled(b, products, row), scales[0], value)

    def end(self, b: VectorBuilder, weights: Any, opened: Any, num_groups: Any, is_end: Any, vector: int) -> Any:
        """Return what the panel has behind its last group for sixteen outputs, or ones before the last chunk."""
        end = b.load(FLOATS, self._end_place(b, weights, num_groups, vector), 64)
        return b.ir.select(is_end, end, b.floats(1.0))

    def _end_place(self, b: VectorBuilder, panel: Any, num_groups: Any, vector: int) -> Any:
        return b.at(b.ir.add(panel, b.times(num_groups, self.block_bytes)), self.head_bytes + 4 * LANES * vector)

    def finish(self, b: VectorBuilder, value: Any, end: Any) -> Any:
        """Turn the sum over all groups into the result."""
        return b.ir.fmul(value, end)


EIGHT_BIT = EightBitPanel()


class TablePanel(EightBitPanel):
    """A reader of panels whose weights come from a table."""

    block_bytes = _NIBBLE_BYTES + 2 * PANEL
    head_bytes = _TABLE_BYTES

    @property
    def opening(self) -> TablePanel:
        return OpeningTablePanel()

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        block = b.at(b.ir.add(weights, b.times(group, self.block_bytes)), self.head_bytes)
        opened = EIGHT_BIT.place(b, opened, None, group).block
        return Place(None, block, opened, b.load(BYTES64, weights, 64))

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        codes = b.load(BYTES64, b.at(place.block, 64 * (VECTORS * pair + vector)), 64)
        return tuple(b.look_up(place.table, b.field(codes, shift, 15)) for shift in (0, 4))


class OpeningTablePanel(TablePanel):
    """A reader of panels with a table that writes them as panels of eight bits."""

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return _stored(b, super().weights(b, place, pair, vector), _byte_places(b, place.opened, pair, vector))

    def _shares(self, b: VectorBuilder, place: Place, vector: int) -> Any:
        shares = super()._shares(b, place, vector)
        b.store(shares, b.at(place.opened, _BYTES + 2 * LANES * vector), 32)
        return shares

    def end(self, b: VectorBuilder, weights: Any, opened: Any, num_groups: Any, is_end: Any, vector: int) -> Any:
        end = super().end(b, weights, opened, num_groups, is_end, vector)
        b.store(end, EIGHT_BIT._end_place(b, opened, num_groups, vector), 64)
        return end


@dataclass(frozen=True)
class PackedPanel:
    """A reader of panels of four to six bits. factors: of an output and superblock, 0 to 2."""

    bits: int
    factors: int

    head_bytes = 0
    end_bytes = 0

    @property
    def opening(self) -> PackedPanel:
        """The reader that writes such panels opened."""
        return OpeningPanel(self.bits, self.factors)

    def starts(self, b: VectorBuilder, numbers: list[Any], num_sums: int) -> list[Any]:
        """Return the initial integer sums of a row: the float MAGIC, or what the centre of the levels gives."""
        if self.is_centred:
            return [b.splat(b.load(WORD, number, 4)) for number in numbers[:2]]
        return [ir.Constant(WORDS, [start] * LANES) for start in (START_BITS, 0)[:num_sums]]

    @property
    def is_centred(self) -> bool:
        """True if zero is in the middle of the levels, and scales belong to 16 inputs."""
        return self.factors == 1

    @property
    def _raised(self) -> int:
        """The bits by which levels are shifted left, so that the middle of centred ones is CENTRE."""
        return 6 - self.bits if self.is_centred else 0

    @property
    def later(self) -> PackedPanel:
        """The reader for further rows of a block."""
        return self

    @property
    def factor_bytes(self) -> int:
        return self.factors * 2 * PANEL

    @property
    def block_bytes(self) -> int:
        return self._numbers_at + _NUMBERS * PANEL * (1 if self.factors else 2)

    @property
    def _numbers_at(self) -> int:
        return _NIBBLE_BYTES + 2 * 64 * (self.bits - 4)

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        block = b.ir.add(weights, b.times(group, self.block_bytes))
        opened = b.ir.add(opened, b.times(group, OPENED_BYTES))
        if not self.factors:
            return Place(None, block, opened)
        superblock = b.ir.udiv(group, ir.Constant(b.integer, SUPERBLOCK))
        block = b.at(b.ir.add(block, b.times(superblock, self.factor_bytes)), self.factor_bytes)
        size = SUPERBLOCK * self.block_bytes + self.factor_bytes
        return Place(b.ir.add(weights, b.times(superblock, size)), block, opened)

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        """Load two chunks of four inputs, as unsigned bytes of sixteen outputs."""
        packed = b.load(BYTES64, b.at(place.block, 64 * (VECTORS * pair + vector)), 64)
        nibbles = tuple(b.field(packed, shift - self._raised, 15 << self._raised) for shift in (0, 4))
        further = self.bits - 4
        if not further:
            return nibbles
        line, first = divmod(2 * pair, 8 // further)
        packed = b.load(BYTES64, b.at(place.block, _NIBBLE_BYTES + 64 * (VECTORS * line + vector)), 64)
        mask, target = (1 << self.bits) - 16 << self._raised, 4 + self._raised
        return tuple(
            b.ir.or_(nibble, b.field(packed, further * (first + half) - target, mask))
            for half, nibble in enumerate(nibbles)
        )

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[Any, ...]:
        """Load both numbers of sixteen outputs, times their factors."""
        return tuple(self._number(b, place, index, vector) for index in range(_NUMBERS))

    def _number(self, b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
        part = LANES * (VECTORS * index + vector)
        if not self.factors:
            return b.ir.fpext(b.load(HALVES, b.at(place.block, self._numbers_at + 2 * part), 32), FLOATS)
        stored = b.load(BYTES16, b.at(place.block, self._numbers_at + part), 16)
        number = b.ir.sitofp((b.ir.sext if self.is_centred else b.ir.zext)(stored, WORDS), FLOATS)
        half = LANES * (VECTORS * (0 if self.is_centred else index) + vector)
        factor = b.ir.fpext(b.load(HALVES, b.at(place.factors, 2 * half), 32), FLOATS)
        if self._raised:
            factor = b.ir.fmul(factor, ir.Constant(FLOATS, [2.0**-self._raised] * LANES))
        return b.ir.fmul(number, factor)

    def add(self, b: VectorBuilder, value: Any, products: list[Any], scales: tuple[Any, ...], row: list[Any]) -> Any:
        """Add a group's integer products to the sums. row: level, total and base of the group."""
        level, total, _ = row
        if self.is_centred:
            first, last = (b.ir.sitofp(product, FLOATS) for product in products)
            return b.fused(b.fused(last, scales[1], b.ir.fmul(first, scales[0])), level, value)
        return b.fused(scales[1], total, b.fused(_scaled(b, products, row), scales[0], value))

    def end(self, b: VectorBuilder, weights: Any, opened: Any, num_groups: Any, is_end: Any, vector: int) -> Any:
        return None

    def finish(self, b: VectorBuilder, value: Any, end: Any) -> Any:
        return value


class OpenedPanel(PackedPanel):
    """A reader of opened panels."""

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place.opened, pair, vector))

    def _number(self, b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
        return b.load(FLOATS, _number_place(b, place, index, vector), 64)


class OpeningPanel(PackedPanel):
    """A reader of packed panels that writes them opened."""

    @property
    def later(self) -> PackedPanel:
        return OpenedPanel(self.bits, self.factors)

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return _stored(b, super().weights(b, place, pair, vector), _byte_places(b, place.opened, pair, vector))

    def _number(self, b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
        value = super()._number(b, place, index, vector)
        b.store(value, _number_place(b, place, index, vector), 64)
        return value


def _scaled(b: VectorBuilder, products: list[Any], row: list[Any]) -> Any:
    """Turn integer sums n that began at MAGIC into n * level, rounded once: (MAGIC + n) * level - MAGIC * level."""
    level, _, base = row
    return b.fused(b.ir.bitcast(b.total(products), FLOATS), level, base)


def _stored(b: VectorBuilder, values: tuple[Any, ...], places: list[Any]) -> tuple[Any, ...]:
    for value, place in zip(values, places, strict=True):
        b.store(value, place, 64)
    return values


def _byte_places(b: VectorBuilder, place: Any, pair: int, vector: int) -> list[Any]:
    return [b.at(place, 64 * (VECTORS * (2 * pair + half) + vector)) for half in range(2)]


def _number_place(b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
    return b.at(place.opened, _BYTES + 64 * (VECTORS * index + vector))


FORMATS: tuple[PackedPanel | EightBitPanel, ...] = (
    PackedPanel(4, 0),
    PackedPanel(4, 1),
    PackedPanel(4, 2),
    PackedPanel(5, 0),
    PackedPanel(5, 2),
    PackedPanel(6, 1),
    TablePanel(),
    EIGHT_BIT,
)
"""The formats of panels by the number that stands for them in a program."""
