"""The layouts of integer weights for integer_product.py. A panel is 32 outputs; inputs are in groups of 32.

Eight bits: each group takes sixteen lines of 64 bytes. Line 2c + v holds chunk c of vector v (16 outputs), and its byte
4n + j is input 4c + j of output n, plus 128. The 32 shares of the group follow, in half precision, and at the panel's
end the 32 scales, in float32. w = scale * share * q.

Four, five or six bits (q), with two numbers per output and group: eight lines of 64 bytes hold the low four bits, then
two lines for each further bit, then the numbers. Line 2p + v belongs to vector v; its byte 4n + j holds inputs 8p + j
(low nibble) and 8p + 4 + j (high) of output n. Byte 4n + j of a line of further bits holds those of inputs j, 4 + j, …,
the first lowest; lines alternate between the vectors. The numbers are, as the file has them:

    factors  numbers (32 of each)                                      w
    0        scale, minimum: half precision                            scale * q + minimum
    2        scale, minimum: unsigned bytes                            factor0 * scale * q + factor1 * minimum
    1        scales of the first and last 16 inputs: signed bytes      factor * scale * (q - 2^(bits - 1))

Factors are in half precision, 32 of each, for every SUPERBLOCK groups, before these.

Four bits whose weights come from a table: a line of 64 bytes holds its 16 bytes four times, plus 128. Each group takes
eight lines of codes, laid as low four bits above, and its 32 shares; the 32 scales end the panel, as in eight bits.
w = scale * share * table[code].

Inputs x are about step * x8. A group of 32 adds scale * step * (q' . x8), where q' is q less the middle level. The rest
of a weight, minimum + middle * scale, is multiplied by the sum of the inputs. A pair holds the rests of two groups in
bfloat16; another holds their sums of inputs. One instruction multiplies two pairs. These products are added last.

An opened group holds a byte for each weight: centred levels with the middle CENTRE, all others with the middle 128
(eight bits stay in the panel). With AVX2, which multiplies small levels faster, packed levels stay as they are. STEPS
variants of each scale follow, in float32: variant v is scale * (1 + v / STEPS). With many rows, the first block writes
them to its thread's scratch for the other blocks, and the pairs of all groups. A block whose rows take several passes
writes the bytes of a group there for its further passes.

NOTE: a scale is a half-precision number times at most a byte, so it and its variants are exact in float32. Results are
the same for few rows, which multiply a scale themselves, and for many only for that reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from engine.kernels.cpu.integer_vectors import (
    BYTES16,
    BYTES64,
    CENTRE,
    CHUNKS,
    FIRST_START,
    FLOATS,
    HALVES,
    LANES,
    LAST_START,
    MAGIC,
    PANEL,
    SIGNIFICAND,
    START,
    STEPS,
    VARIANT,
    VARIANT_BYTES,
    VECTORS,
    WORD,
    WORDS,
    ZERO,
    VectorBuilder,
    has_dots,
)

SUPERBLOCK = 8
"""Groups that share their factors."""
_NIBBLE_BYTES = CHUNKS // 2 * VECTORS * 64
_BYTES = CHUNKS * VECTORS * 64
_TABLE_BYTES = 64
PAIR_BYTES = 4 * PANEL
"""Bytes of the pairs of two groups."""


class Place(NamedTuple):
    """A group: its number, and the addresses of its factors, of its block, and of the same opened.

    table: the panel's, as 64 bytes
    """

    group: Any
    factors: Any
    block: Any
    opened: Any
    table: Any = None


class Record:
    """A row's part of a record."""

    def __init__(self, b: VectorBuilder, address: Any) -> None:
        self._b = b
        self._address = address

    def number(self, index: int) -> Any:
        """Return an integer."""
        return self._b.load(WORD, self._b.at(self._address, 4 * index), 4)

    def start(self, middle: int) -> Any:
        """Return the initial sum, 16 times, where levels of zero are `middle`."""
        start = self.number(START)
        if middle != ZERO:
            magic, bits = self.number(MAGIC), ir.Constant(WORD, (ZERO // middle).bit_length() - 1)
            start = self._b.ir.add(self._b.ir.ashr(self._b.ir.sub(start, magic), bits), magic)
        return self._b.splat(start)

    def significand(self) -> Any:
        """Return the step without its power of two, 16 times."""
        return self._b.splat_float(self._b.at(self._address, 4 * SIGNIFICAND))

    def scaled(self, product: Any) -> Any:
        """Turn integers that began at a start into floats: times the power of two of the step."""
        magic = self._b.splat_float(self._b.at(self._address, 4 * MAGIC))
        return self._b.ir.fsub(self._b.ir.bitcast(product, FLOATS), magic)


class Scale:
    """A group's scales of sixteen outputs."""

    def __init__(self, b: VectorBuilder, values: Any) -> None:
        self._b = b
        self._values = values

    def times(self, record: Record) -> Any:
        """Return the scales times the significand of a row's step."""
        return self._b.ir.fmul(self._values, record.significand())


class OpenedScale:
    """The scales of sixteen outputs in an opened group. `address`: of their variant 0."""

    def __init__(self, b: VectorBuilder, address: Any) -> None:
        self._b = b
        self._address = address

    def times(self, record: Record) -> Any:
        """Return the variant that a row's step names."""
        offset = self._b.ir.zext(record.number(VARIANT), self._b.integer)
        return self._b.load(FLOATS, self._b.ir.add(self._address, offset), 64)


@dataclass(frozen=True)
class EightBitPanel:
    """A reader of eight-bit panels, with the methods of PackedPanel."""

    block_bytes = _BYTES + 2 * PANEL
    factor_bytes = 0
    head_bytes = 0
    end_bytes = 4 * PANEL
    is_centred = False
    has_minimum = False
    num_scales = 1
    is_opened = False
    most = 255

    @property
    def opening(self) -> EightBitPanel:
        """The reader that writes such panels opened, and reads them so."""
        return OpeningEightBitPanel()

    @property
    def opened(self) -> EightBitPanel:
        """The reader of such panels when they are opened."""
        return OpenedEightBitPanel()

    def starts(self, b: VectorBuilder, record: Record, num_sums: int) -> list[Any]:
        """Return the initial integer sums of a row: what the 128 added to each weight gives."""
        return [record.start(ZERO), *[b.words(0)] * (num_sums - 1)]

    @property
    def later(self) -> EightBitPanel:
        """The reader for further rows of a block."""
        return self

    @property
    def in_passes(self) -> EightBitPanel:
        return self

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        """Return a group of the panel at `weights`, opened at `opened`."""
        block = b.at(b.ir.add(weights, b.times(group, self.block_bytes)), self.head_bytes)
        return Place(group, None, block, opened)

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place.block, pair, vector))

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[Scale, ...]:
        return (Scale(b, self._number(b, place, 0, vector)),)

    def _number(self, b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
        shares = b.load(HALVES, b.at(place.block, self.block_bytes - 2 * PANEL + 2 * LANES * vector), 32)
        return b.ir.fpext(shares, FLOATS)

    def end(self, b: VectorBuilder, weights: Any, num_groups: Any, is_end: Any, vector: int) -> Any:
        """Return what the panel has behind its last group for sixteen outputs, or ones before the last chunk."""
        place = b.at(b.ir.add(weights, b.times(num_groups, self.block_bytes)), self.head_bytes + 4 * LANES * vector)
        return b.ir.select(is_end, b.load(FLOATS, place, 64), b.floats(1.0))

    def finish(self, b: VectorBuilder, value: Any, end: Any) -> Any:
        """Turn the sum over all groups into the result."""
        return b.ir.fmul(value, end)

    def line(
        self, b: VectorBuilder, weights: Any, num_groups: Any, place: Place, index: int, vector: int
    ) -> tuple[Any, Any]:
        """Return slope and start of sixteen outputs: a weight is slope * level + start.

        `index`: of the scale, where a group has several.
        """
        is_end = ir.Constant(ir.IntType(1), 1)
        slope = b.ir.fmul(self._number(b, place, index, vector), self.end(b, weights, num_groups, is_end, vector))
        return slope, b.ir.fmul(slope, b.floats(-float(ZERO)))


class TablePanel(EightBitPanel):
    """A reader of panels whose weights come from a table."""

    block_bytes = _NIBBLE_BYTES + 2 * PANEL
    head_bytes = _TABLE_BYTES

    @property
    def opening(self) -> TablePanel:
        return OpeningTablePanel()

    @property
    def opened(self) -> TablePanel:
        return OpenedTablePanel()

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        return super().place(b, weights, opened, group)._replace(table=b.load(BYTES64, weights, 64))

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        codes = b.load(BYTES64, b.at(place.block, 64 * (VECTORS * pair + vector)), 64)
        return tuple(b.look_up(place.table, b.field(codes, shift, 15)) for shift in (0, 4))


@dataclass(frozen=True)
class PackedPanel:
    """A reader of panels of four to six bits. factors: of an output and superblock, 0 to 2."""

    bits: int
    factors: int

    head_bytes = 0
    end_bytes = 0
    is_opened = False

    @property
    def opening(self) -> PackedPanel:
        return OpeningPanel(self.bits, self.factors)

    @property
    def opened(self) -> PackedPanel:
        if self.is_centred:
            return OpenedPanel(6, 1)
        return OpenedPanel(4 if has_dots() else self.bits, 0)

    @property
    def later(self) -> PackedPanel:
        return self

    @property
    def in_passes(self) -> PackedPanel:
        """The reader for a block whose rows take several passes."""
        return FirstPassPanel(self.bits, self.factors)

    @property
    def most(self) -> int:
        """The largest level."""
        return (1 << self.bits) - 1 << self._raised

    def starts(self, b: VectorBuilder, record: Record, num_sums: int) -> list[Any]:
        """Return the initial integer sums of a row: what the middle level gives."""
        if self.is_centred:
            return [b.splat(record.number(number)) for number in (FIRST_START, LAST_START)]
        return [record.start(self._middle), *[b.words(0)] * (num_sums - 1)]

    @property
    def is_centred(self) -> bool:
        """True if zero is in the middle of the levels, and scales belong to 16 inputs."""
        return self.factors == 1

    @property
    def has_minimum(self) -> bool:
        return not self.is_centred

    @property
    def num_scales(self) -> int:
        return 2 if self.is_centred else 1

    @property
    def _middle(self) -> int:
        return 1 << self.bits - 1

    @property
    def _raised(self) -> int:
        """The bits by which levels are shifted left, so that the middle of centred ones is CENTRE."""
        return CENTRE.bit_length() - self.bits if self.is_centred else 0

    @property
    def factor_bytes(self) -> int:
        return self.factors * 2 * PANEL

    @property
    def block_bytes(self) -> int:
        return self._numbers_at + 2 * PANEL * (1 if self.factors else 2)

    @property
    def _numbers_at(self) -> int:
        return _NIBBLE_BYTES + 2 * 64 * (self.bits - 4)

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Place:
        block = b.ir.add(weights, b.times(group, self.block_bytes))
        if not self.factors:
            return Place(group, None, block, opened)
        superblock = b.ir.udiv(group, ir.Constant(b.integer, SUPERBLOCK))
        block = b.at(b.ir.add(block, b.times(superblock, self.factor_bytes)), self.factor_bytes)
        size = SUPERBLOCK * self.block_bytes + self.factor_bytes
        return Place(group, b.ir.add(weights, b.times(superblock, size)), block, opened)

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

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[Scale, ...]:
        """Return the scales of sixteen outputs, of each half of the group if the panel is centred."""
        return tuple(Scale(b, self._number(b, place, index, vector)) for index in range(self.num_scales))

    def rest(self, b: VectorBuilder, place: Place, vector: int) -> Any:
        """Return the rests of sixteen outputs' weights in bfloat16, in the lower half of each lane."""
        scale, minimum = (self._number(b, place, index, vector) for index in range(2))
        return b.narrowed(b.fused(scale, b.floats(float(self._middle)), minimum))

    def _number(self, b: VectorBuilder, place: Place, index: int, vector: int) -> Any:
        """Load a number of sixteen outputs, times its factor."""
        part = LANES * (VECTORS * index + vector)
        if not self.factors:
            return b.ir.fpext(b.load(HALVES, b.at(place.block, self._numbers_at + 2 * part), 32), FLOATS)
        stored = b.load(BYTES16, b.at(place.block, self._numbers_at + part), 16)
        number = b.ir.sitofp((b.ir.sext if self.is_centred else b.ir.zext)(stored, WORDS), FLOATS)
        half = LANES * (VECTORS * (0 if self.is_centred else index) + vector)
        factor = b.ir.fpext(b.load(HALVES, b.at(place.factors, 2 * half), 32), FLOATS)
        if self._raised:
            factor = b.ir.fmul(factor, b.floats(2.0**-self._raised))
        return b.ir.fmul(number, factor)

    def end(self, b: VectorBuilder, weights: Any, num_groups: Any, is_end: Any, vector: int) -> Any:
        return None

    def finish(self, b: VectorBuilder, value: Any, end: Any) -> Any:
        return value

    def line(
        self, b: VectorBuilder, weights: Any, num_groups: Any, place: Place, index: int, vector: int
    ) -> tuple[Any, Any]:
        slope = self._number(b, place, index, vector)
        if self.is_centred:
            return slope, b.ir.fmul(slope, b.floats(-float(CENTRE)))
        return slope, self._number(b, place, 1, vector)


class _Opened:
    """What readers of opened panels share: scales, and weights unless these are in eight bits."""

    is_opened = True

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place.opened, pair, vector))

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[OpenedScale, ...]:
        return tuple(OpenedScale(b, _variant_place(b, place, index, 0, vector)) for index in range(self.num_scales))


class _Opening:
    """What readers that open panels share: they write what they read."""

    @property
    def later(self) -> Any:
        return self.opened

    def scales(self, b: VectorBuilder, place: Place, vector: int) -> tuple[OpenedScale, ...]:
        for index in range(self.num_scales):
            number = self._number(b, place, index, vector)
            for variant in range(STEPS):
                value = b.ir.fmul(number, b.floats(1.0 + variant / STEPS))
                b.store(value, _variant_place(b, place, index, variant, vector), 64)
        return self.opened.scales(b, place, vector)


class _Storing:
    """What readers share that write a group's bytes."""

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        values = super().weights(b, place, pair, vector)
        for value, at in zip(values, _byte_places(b, place.opened, pair, vector), strict=True):
            b.store(value, at, 64)
        return values


class FirstPassPanel(_Storing, PackedPanel):
    """A reader that leaves a group's bytes to the further passes."""

    @property
    def later(self) -> PackedPanel:
        return SecondPassPanel(self.bits, self.factors)


class SecondPassPanel(PackedPanel):
    """A reader of what the first pass has left."""

    weights = _Opened.weights


class OpenedEightBitPanel(_Opened, EightBitPanel):
    """A reader of panels of eight bits whose scales are opened."""

    weights = EightBitPanel.weights


class OpeningEightBitPanel(_Opening, EightBitPanel):
    """A reader of panels of eight bits that opens their scales."""


class OpenedTablePanel(_Opened, TablePanel):
    """A reader of opened panels with a table."""


class OpeningTablePanel(_Opening, _Storing, TablePanel):
    """A reader of panels with a table that opens them."""


class RaisedPanel(PackedPanel):
    """A reader of packed panels as the bytes of opened ones."""

    @property
    def most(self) -> int:
        return super().most + self._added

    @property
    def _added(self) -> int:
        """What is added to each level."""
        return ZERO - self._middle if has_dots() and not self.is_centred else 0

    def starts(self, b: VectorBuilder, record: Record, num_sums: int) -> list[Any]:
        return (EightBitPanel if self._added else PackedPanel).starts(self, b, record, num_sums)

    def weights(self, b: VectorBuilder, place: Place, pair: int, vector: int) -> tuple[Any, ...]:
        values = super().weights(b, place, pair, vector)
        if not self._added:
            return values
        more = ir.Constant(BYTES64, [self._added] * 64)
        return tuple(b.ir.add(value, more) for value in values)


class OpenedPanel(_Opened, RaisedPanel):
    """A reader of opened panels."""


class OpeningPanel(_Opening, _Storing, RaisedPanel):
    """A reader of packed panels that opens them."""


def opened_group_bytes(num_scales: int) -> int:
    """Return the bytes of an opened group."""
    return _BYTES + num_scales * STEPS * VARIANT_BYTES


def _byte_places(b: VectorBuilder, place: Any, pair: int, vector: int) -> list[Any]:
    return [b.at(place, 64 * (VECTORS * (2 * pair + half) + vector)) for half in range(2)]


def _variant_place(b: VectorBuilder, place: Place, index: int, variant: int, vector: int) -> Any:
    return b.at(place.opened, _BYTES + (STEPS * index + variant) * VARIANT_BYTES + 64 * vector)


FORMATS: tuple[PackedPanel | EightBitPanel, ...] = (
    PackedPanel(4, 0),
    PackedPanel(4, 1),
    PackedPanel(4, 2),
    PackedPanel(5, 0),
    PackedPanel(5, 2),
    PackedPanel(6, 1),
    TablePanel(),
    EightBitPanel(),
)
"""The formats of panels by the number that stands for them in a program."""
