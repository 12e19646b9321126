"""Tiles in plain memory, for processors without them: the sizes are those that a kernel has configured."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from engine.kernels.cpu.integer_vectors import BYTE, BYTES64, FLOATS, WORD, WORDS
from engine.kernels.cpu.tile_product import CONFIGURATION_BYTES, TILE_BYTES, TILE_ROWS

NUM_TILES = 8
MEMORY = np.zeros(NUM_TILES * TILE_BYTES + CONFIGURATION_BYTES + 64, np.uint8)
"""The tiles, then their configuration; of one thread."""
START = -(-MEMORY.ctypes.data // 64) * 64
ROWS_AT = 48
"""Where a configuration has the rows of its tiles."""


class EmulatedTiles:
    """What `tile_product.Tiles` does with instructions."""

    def __init__(self, b):
        self._b = b

    def configure(self, address):
        b = self._b
        b.store(b.load(BYTES64, address, 1), self._number(START + NUM_TILES * TILE_BYTES), 64)
        for tile in range(NUM_TILES):
            self.zero(tile)

    def release(self):
        """Leave a configuration of no rows."""
        self._b.store(ir.Constant(BYTES64, [0] * 64), self._number(START + NUM_TILES * TILE_BYTES), 64)

    def zero(self, tile):
        with self._b.loop(self._number(TILE_ROWS)) as row:
            self._b.store(self._b.words(0), self._row(tile, row), 64)

    def load(self, tile, address, stride):
        b = self._b
        with b.loop(self._num_rows(tile)) as row:
            value = b.load(BYTES64, b.ir.add(address, b.ir.mul(row, stride)), 1)
            b.store(value, self._row(tile, row), 64)

    def store(self, tile, address, stride):
        b = self._b
        with b.loop(self._num_rows(tile)) as row:
            b.store(b.load(BYTES64, self._row(tile, row), 64), b.ir.add(address, b.ir.mul(row, stride)), 1)

    def multiply(self, sums, inputs, weights):
        b = self._b
        with b.loop(self._num_rows(sums)) as row, b.loop(self._number(TILE_ROWS)) as pair:
            two = b.splat(b.load(WORD, b.ir.add(self._row(inputs, row), b.times(pair, 4)), 4))
            total = b.load(FLOATS, self._row(sums, row), 64)
            total = b.dot_pairs(total, two, b.load(WORDS, self._row(weights, pair), 64))
            b.store(total, self._row(sums, row), 64)

    def _number(self, value):
        return ir.Constant(self._b.integer, value)

    def _num_rows(self, tile):
        rows = self._b.load(BYTE, self._number(START + NUM_TILES * TILE_BYTES + ROWS_AT + tile), 1)
        return self._b.ir.zext(rows, self._b.integer)

    def _row(self, tile, row):
        return self._b.ir.add(self._number(START + tile * TILE_BYTES), self._b.times(row, 64))
