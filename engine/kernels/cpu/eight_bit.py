"""The layout of eight-bit weights for integer_product.py, with one scale per output.

A panel is 32 outputs. Each group of 32 inputs takes sixteen lines of 64 bytes: line 2c + v holds chunk c of vector v
(16 outputs), and its byte 4n + j is input 4c + j of output n, plus 128. The 32 scales follow at the panel's end, in
float32. y = scale * (sum over groups of xs * (w . x8) - 128 * sum of xs * sum(x8)).
"""

from __future__ import annotations

from typing import Any

from engine.kernels.cpu.integer_vectors import BYTES64, CHUNKS, FLOATS, LANES, VECTORS, VectorBuilder

ZERO = 128


class EightBitPanel:
    """A reader of panels, with the methods of four_bit.FourBitPanel."""

    block_bytes = CHUNKS * VECTORS * 64
    end_bytes = VECTORS * 4 * LANES
    start_bits = 0

    def place(self, b: VectorBuilder, weights: Any, opened: Any, group: Any) -> Any:
        return b.ir.add(weights, b.times(group, self.block_bytes))

    def weights(self, b: VectorBuilder, place: Any, pair: int, vector: int) -> tuple[Any, ...]:
        return tuple(b.load(BYTES64, b.at(place, 64 * (VECTORS * (2 * pair + half) + vector)), 64) for half in range(2))

    def scales(self, b: VectorBuilder, place: Any, vector: int) -> tuple[Any, ...]:
        return ()

    def begin(self, b: VectorBuilder, shift: Any) -> Any:
        return shift

    def add_group(self, b: VectorBuilder, value: Any, products: Any, scales: tuple[Any, ...], row: list[Any]) -> Any:
        level, _, _ = row
        return b.fused(b.ir.sitofp(products, FLOATS), level, value)

    def finish(self, b: VectorBuilder, value: Any, weights: Any, num_groups: Any, vector: int) -> Any:
        end = b.ir.add(weights, b.times(num_groups, self.block_bytes))
        return b.ir.fmul(value, b.load(FLOATS, b.at(end, 64 * vector), 64))
