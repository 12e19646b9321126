"""Vector operations of kernels, quantisation of a group to eight bits, VNNI's dot products.

A group is 32 inputs, a panel 32 outputs in two vectors of 16. Unsigned bytes of weights times signed bytes of inputs
are summed, four at a time, into the lane of their output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

GROUP = 32
LANES = 16
VECTORS = 2
PANEL = LANES * VECTORS
LANE_INPUTS = 4
"""Inputs that one lane of a vector multiplies at once."""
CHUNKS = GROUP // LANE_INPUTS
MAGIC = 3 << 22
"""A sum of products that starts at the bits of this float is itself a float, MAGIC + the sum, below 2^22."""
START_BITS = 0x4B400000
"""The bits of MAGIC."""
ZERO = 128
"""The level of a weight of zero in eight bits."""
CENTRE = 32
"""The level of a weight of zero where scales have no minimum, in six bits."""
LEVEL_BITS = -4
"""A mask that clears the last two bits of a level, so that MAGIC times it is exact."""
NUMBERS = 6
"""Numbers of a row in a record: level, total, base, starts of the first and last 16 inputs, start of eight bits."""
ROW_BYTES = 4 * NUMBERS + GROUP
"""Bytes of a row in a record."""

BYTE, WORD, FLOAT = ir.IntType(8), ir.IntType(32), ir.FloatType()
BYTES16 = ir.VectorType(BYTE, LANES)
BYTES64 = ir.VectorType(BYTE, 64)
WORDS = ir.VectorType(WORD, LANES)
PAIRS = ir.VectorType(ir.IntType(16), 2 * LANES)
FLOATS = ir.VectorType(FLOAT, LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)


@cache
def is_available() -> bool:
    """Return True if this processor has the instructions."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512vnni") and features.get("avx512bw") and features.get("f16c"))


@cache
def has_tiles() -> bool:
    """Return True if this processor multiplies matrices of bfloat16 in tiles (AMX)."""
    return bool(llvm.get_host_cpu_features().get("amx-bf16"))


class VectorBuilder:
    """A builder of the vector operations of the intrinsics. Addresses are integers."""

    def __init__(self, builder: Any) -> None:
        self.ir = builder
        self.integer = ir.IntType(64)

    def at(self, address: Any, offset: int) -> Any:
        return self.ir.add(address, ir.Constant(self.integer, offset)) if offset else address

    def times(self, number: Any, size: int) -> Any:
        return self.ir.mul(number, ir.Constant(self.integer, size))

    def load(self, kind: Any, address: Any, align: int) -> Any:
        return self.ir.load(self.ir.inttoptr(address, kind.as_pointer()), align=align)

    def store(self, value: Any, address: Any, align: int) -> None:
        self.ir.store(value, self.ir.inttoptr(address, value.type.as_pointer()), align=align)

    @contextmanager
    def loop(self, end: Any, step: int = 1) -> Iterator[Any]:
        """Build a loop over an integer from 0 to `end`."""
        start, stride = ir.Constant(self.integer, 0), ir.Constant(self.integer, step)
        with cgutils.for_range_slice(self.ir, start, end, stride, self.integer) as (number, _):
            yield number

    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, LANES)
        first = self.ir.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(WORD, 0))
        return self.ir.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(WORDS, [0] * LANES))

    def splat_float(self, address: Any) -> Any:
        return self.splat(self.load(FLOAT, address, 4))

    def prefetch(self, address: Any, is_written: bool = False) -> None:
        """Prefetch a cache line: into the second level to read it, or to write to it."""
        byte = BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, WORD, WORD, WORD])
        function = cgutils.get_or_insert_function(self.ir.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(WORD, flag) for flag in ((1, 3, 1) if is_written else (0, 2, 1))]
        self.ir.call(function, [self.ir.inttoptr(address, byte), *flags])

    def dot(self, sums: Any, weights: Any, inputs: Any) -> Any:
        """Add to each of 16 sums the products of four unsigned bytes of weights with four signed bytes of inputs."""
        return self.call("llvm.x86.avx512.vpdpbusd.512", WORDS, sums, weights, inputs)

    def field(self, packed: Any, shift: int, mask: int) -> Any:
        """Shift 64 bytes by less than eight bits, to the right or, below zero, to the left, and mask what is kept."""
        if shift:
            move = self.ir.lshr if shift > 0 else self.ir.shl
            shifted = move(self.ir.bitcast(packed, PAIRS), ir.Constant(PAIRS, [abs(shift)] * 32))
            packed = self.ir.bitcast(shifted, BYTES64)
        return self.ir.and_(packed, ir.Constant(BYTES64, [mask] * 64))

    def look_up(self, table: Any, codes: Any) -> Any:
        """Return the table's byte for each of 64 codes below 16. table: 64 bytes, the same 16 four times."""
        return self.call("llvm.x86.avx512.pshuf.b.512", BYTES64, table, codes)

    def floats(self, value: float) -> Any:
        return ir.Constant(FLOATS, [value] * LANES)

    def words(self, value: int) -> Any:
        return ir.Constant(WORDS, [value] * LANES)

    def magnitude(self, floats: Any) -> Any:
        """Return the bits of the absolute values of 16 floats."""
        return self.ir.bitcast(self.call("llvm.fabs.v16f32", FLOATS, floats), WORDS)

    def largest(self, a: Any, b: Any) -> Any:
        """Return the larger of each two of 16 unsigned integers."""
        return self.call("llvm.umax.v16i32", WORDS, a, b)

    def shuffled(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """Return lanes of two vectors, those of the second from 16 on."""
        return self.ir.shuffle_vector(a, b, ir.Constant(ir.VectorType(WORD, len(lanes)), lanes))

    def swapped(self, vector: Any, distance: int) -> Any:
        """Exchange the lanes whose numbers differ by `distance`, a power of two."""
        return self.shuffled(vector, vector, [lane ^ distance for lane in range(LANES)])

    def select(self, lanes: list[bool], a: Any, b: Any) -> Any:
        """Return lanes of `a` where `lanes` is true, else of `b`."""
        return self.shuffled(a, b, [lane if is_first else lane + LANES for lane, is_first in enumerate(lanes)])

    def total(self, sums: list[Any]) -> Any:
        """Add one or two vectors of integers."""
        return sums[0] if len(sums) == 1 else self.ir.add(*sums)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Compute a * b + c (16 floats), rounded once."""
        return self.call("llvm.fma.v16f32", FLOATS, a, b, c)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, kind, name), arguments)


@intrinsic
def quantize_two_groups(typingctx, first, second, first_record, second_record):
    """Quantise 32 floats at each of two addresses to a row's part of a record: ROW_BYTES at each of two others.

    That is NUMBERS numbers, then 32 levels (int8). In float32 a level's size, that times the sum of the levels, and
    -MAGIC times it; in int32 -CENTRE times the sums of the first and of the last 16 levels, and -ZERO times the sum of
    all plus the bits of MAGIC.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        sources, records = arguments[:2], arguments[2:]
        inputs = [[b.load(FLOATS, b.at(source, 64 * part), 4) for part in range(2)] for source in sources]
        # NOTE: as integers the bits of NaN exceed those of every number, so a broken group has a NaN level and stays
        # visible.
        largest = [b.largest(*(b.magnitude(half) for half in halves)) for halves in inputs]
        # The first eight lanes are of the first group, the last eight of the second.
        largest = b.largest(*(b.shuffled(*largest, [*range(at, at + 8), *range(at + 16, at + 24)]) for at in (0, 8)))
        for distance in (4, 2, 1):
            largest = b.largest(largest, b.swapped(largest, distance))
        level = builder.fmul(builder.bitcast(largest, FLOATS), b.floats(float(np.float32(1 / 127))))
        level = builder.bitcast(builder.and_(builder.bitcast(level, WORDS), b.words(LEVEL_BITS)), FLOATS)
        least = b.floats(float(np.float32(1e-30)))
        inverse = builder.fdiv(b.floats(1.0), b.call("llvm.maxnum.v16f32", FLOATS, level, least))
        words = []
        for number, halves in enumerate(inputs):
            of_group = b.shuffled(inverse, inverse, [8 * number] * LANES)
            for half in halves:
                rounded = b.call("llvm.rint.v16f32", FLOATS, builder.fmul(half, of_group))
                words.append(builder.fptosi(rounded, WORDS))
        pairs = [b.call("llvm.x86.avx512.packssdw.512", PAIRS, words[number], words[number + 1]) for number in (0, 2)]
        packed = b.call("llvm.x86.avx512.packsswb.512", BYTES64, *pairs)
        # Packing leaves each vector's fourth part in each lane of 128 bits.
        packed = builder.bitcast(packed, WORDS)
        packed = b.shuffled(packed, packed, [4 * part + vector for vector in range(4) for part in range(4)])
        ones = ir.Constant(BYTES64, [1] * 64)
        halves = b.dot(b.words(0), ones, builder.bitcast(packed, BYTES64))
        for distance in (2, 1):
            halves = builder.add(halves, b.swapped(halves, distance))
        count = builder.add(halves, b.swapped(halves, 4))
        lanes = [lane % 8 for lane in range(LANES)]
        # Lanes 0 to 2 of a group, then lanes 3 (of the first half), 4 (of the last half) and 5.
        times = b.select([lane == 1 for lane in lanes], builder.sitofp(count, FLOATS), b.floats(1.0))
        times = b.select([lane == 2 for lane in lanes], b.floats(-float(MAGIC)), times)
        sums = b.select([lane == 5 for lane in lanes], count, halves)
        sums = builder.mul(sums, ir.Constant(WORDS, [-ZERO if lane == 5 else -CENTRE for lane in lanes]))
        sums = builder.add(sums, ir.Constant(WORDS, [START_BITS if lane == 5 else 0 for lane in lanes]))
        scaled = builder.bitcast(builder.fmul(level, times), WORDS)
        numbers = b.select([lane < 3 for lane in lanes], scaled, sums)
        for number, record in enumerate(records):
            of_group = [*range(8 * number, 8 * number + 8)]
            b.store(b.shuffled(numbers, numbers, of_group), record, 4)
            b.store(b.shuffled(packed, packed, of_group), b.at(record, 4 * NUMBERS), 4)  # over the last two lanes
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4), generate
