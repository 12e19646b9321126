"""The layouts of integer weights for integer_product.py. A panel is 32 outputs; inputs are in groups of 32.

Eight bits, with one scale per output: each group takes sixteen lines of 64 bytes. Line 2c + v holds chunk c of vector v
(16 outputs), and its byte 4n + j is input 4c + j of output n, plus 128. The 32 scales follow at the panel's end, in
float32. y = scale * (sum over groups of xs * (w . x8) - 128 * sum of xs * sum(x8)).

Four bits, with a scale and a minimum per output and group: 640 bytes a group. Eight lines of 64 bytes hold nibbles,
then 32 scales and 32 minima in half precision. Line 2p + v belongs to vector v; its byte 4n + j holds inputs 8p + j
(low nibble) and 8p + 4 + j (high) of output n. y = sum over groups of scale * xs * (q . x8) + minimum * xs * sum(x8),
where x is about xs * x8, as in llama.cpp's Q4_1 x Q8_1 products (ggml, MIT).

An opened four-bit panel holds a byte for each weight, and scales and minima in float32. With many rows, the first block
writes it to its thread's scratch for the other blocks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from engine.kernels.cpu.integer_vectors import BYTES64, CHUNKS, FLOATS, HALVES, LANES, VECTORS, VectorBuilder

ZERO = 128
_NIBBLE_BYTES = CHUNKS // 2 * VECTORS * 64
_BYTES = CHUNKS * VECTORS * 64


class EightBitPanel:
    """A reader of eight-bit panels, with the methods of FourBitPanel."""

    block_bytes = _BYTES
    end_bytes = VECTORS * 4 * LANES
    start_bits = 0

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Any:
        return b.ir.add(weights, b.times(group, self.block_bytes))

    def weights(self, b: VectorBuilder, place: Any, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place, pair, vector))

    def scales(self, b: VectorBuilder, place: Any, vector: int) -> tuple[Any, ...]:
        return ()

    def begin(self, b: VectorBuilder, shift: Any) -> Any:
        return shift

    def add_group(self, b: VectorBuilder, value: Any, products: Any, scales: tuple[Any, ...], row: list[Any]) -> Any:
        return b.fused(b.ir.sitofp(products, FLOATS), row[0], value)

    def finish(self, b: VectorBuilder, value: Any, weights: Any, num_groups: Any, vector: int) -> Any:
        end = b.ir.add(weights, b.times(num_groups, self.block_bytes))
        return b.ir.fmul(value, b.load(FLOATS, b.at(end, 64 * vector), 64))


class FourBitPanel:
    """A reader of packed four-bit panels. A place is the address of a group."""

    block_bytes = _NIBBLE_BYTES + 2 * VECTORS * 2 * LANES
    opened_bytes = _BYTES + 2 * VECTORS * 4 * LANES
    start_bits = 0x4B400000
    """Initial bits of the integer sums: the float MAGIC."""

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Any:
        return b.ir.add(weights, b.times(group, self.block_bytes))

    def weights(self, b: VectorBuilder, place: Any, pair: int, vector: int) -> tuple[Any, ...]:
        """Load two chunks of four inputs, as unsigned bytes of sixteen outputs."""
        packed = b.load(BYTES64, b.at(place, 64 * (VECTORS * pair + vector)), 64)
        words = ir.VectorType(ir.IntType(16), 32)
        low_nibbles = ir.Constant(BYTES64, [15] * 64)
        shifted = b.ir.lshr(b.ir.bitcast(packed, words), ir.Constant(words, [4] * 32))
        return b.ir.and_(packed, low_nibbles), b.ir.and_(b.ir.bitcast(shifted, BYTES64), low_nibbles)

    def scales(self, b: VectorBuilder, place: Any, vector: int) -> tuple[Any, ...]:
        """Load scales and minima of sixteen outputs."""
        places = (b.at(place, _NIBBLE_BYTES + 2 * LANES * (vector + VECTORS * part)) for part in range(2))
        return tuple(b.ir.fpext(b.load(HALVES, at, 32), FLOATS) for at in places)

    def begin(self, b: VectorBuilder, shift: Any) -> Any:
        """Return the initial sums of a row."""
        return ir.Constant(FLOATS, [0.0] * LANES)

    def add_group(self, b: VectorBuilder, value: Any, products: Any, scales: tuple[Any, ...], row: list[Any]) -> Any:
        """Add a group's integer products to the sums. row: level, total and base of the group."""
        scale, minimum = scales
        level, total, base = row
        # NOTE: one multiplication turns integers into scaled floats: (MAGIC + n) * level - MAGIC * level is n * level,
        # rounded once.
        scaled = b.fused(b.ir.bitcast(products, FLOATS), level, base)
        return b.fused(minimum, total, b.fused(scaled, scale, value))

    def finish(self, b: VectorBuilder, value: Any, weights: Any, num_groups: Any, vector: int) -> Any:
        return value


class OpenedPanel(FourBitPanel):
    """A reader of opened panels."""

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Any:
        return b.ir.add(opened, b.times(group, self.opened_bytes))

    def weights(self, b: VectorBuilder, place: Any, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, at, 64) for at in _byte_places(b, place, pair, vector))

    def scales(self, b: VectorBuilder, place: Any, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(FLOATS, at, 64) for at in _scale_places(b, place, vector))


class OpeningPanel(OpenedPanel):
    """A reader of packed panels that writes them opened. A place is two addresses: packed, opened."""

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Any:
        return FourBitPanel.place(self, b, weights, opened, group), OpenedPanel.place(self, b, weights, opened, group)

    def weights(self, b: VectorBuilder, place: Any, pair: int, vector: int) -> tuple[Any, ...]:
        packed, opened = place
        return _store_all(b, FourBitPanel.weights(self, b, packed, pair, vector), _byte_places(b, opened, pair, vector))

    def scales(self, b: VectorBuilder, place: Any, vector: int) -> tuple[Any, ...]:
        packed, opened = place
        return _store_all(b, FourBitPanel.scales(self, b, packed, vector), _scale_places(b, opened, vector))


def _byte_places(b: VectorBuilder, place: Any, pair: int, vector: int) -> list[Any]:
    return [b.at(place, 64 * (VECTORS * (2 * pair + half) + vector)) for half in range(2)]


def _scale_places(b: VectorBuilder, place: Any, vector: int) -> list[Any]:
    return [b.at(place, _BYTES + 64 * (vector + VECTORS * part)) for part in range(2)]


def _store_all(b: VectorBuilder, values: tuple[Any, ...], places: list[Any]) -> tuple[Any, ...]:
    for value, at in zip(values, places, strict=True):
        b.store(value, at, 64)
    return values
