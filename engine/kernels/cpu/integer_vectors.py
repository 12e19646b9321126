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
def quantize_group(typingctx, source, levels, numbers, stride):
    """Quantise 32 floats: write levels (int8), and numbers `stride` bytes apart.

    These are, in float32, a level's size, that times the sum of the levels, and -MAGIC times it; then -CENTRE times the
    sums of the first and of the last 16 levels, and -ZERO times the sum of all plus the bits of MAGIC (int32).
    """

    def generate(context, builder, signature, arguments):
        source, levels, numbers, stride = arguments
        b = VectorBuilder(builder)
        halves = [b.load(FLOATS, b.at(source, 64 * part), 4) for part in range(2)]
        sizes = [b.call("llvm.fabs.v16f32", FLOATS, half) for half in halves]
        # NOTE: as integers the bits of NaN exceed those of every number, so a broken group has a NaN level and stays
        # visible.
        largest = b.call("llvm.umax.v16i32", WORDS, *(builder.bitcast(size, WORDS) for size in sizes))
        largest = builder.bitcast(b.call("llvm.vector.reduce.umax.v16i32", WORD, largest), FLOAT)
        level = builder.fmul(largest, ir.Constant(FLOAT, float(np.float32(1 / 127))))
        level = builder.bitcast(builder.and_(builder.bitcast(level, WORD), ir.Constant(WORD, LEVEL_BITS)), FLOAT)
        least = ir.Constant(FLOAT, float(np.float32(1e-30)))
        inverse = builder.fdiv(ir.Constant(FLOAT, 1.0), b.call("llvm.maxnum.f32", FLOAT, level, least))
        words = []
        for part, half in enumerate(halves):
            rounded = b.call("llvm.rint.v16f32", FLOATS, builder.fmul(half, b.splat(inverse)))
            words.append(builder.fptosi(rounded, WORDS))
            b.store(builder.trunc(words[-1], BYTES16), b.at(levels, LANES * part), 1)
        sums = [b.call("llvm.vector.reduce.add.v16i32", WORD, half) for half in words]
        count = builder.add(*sums)
        written = [
            level,
            builder.fmul(level, builder.sitofp(count, FLOAT)),
            builder.fmul(level, ir.Constant(FLOAT, -float(MAGIC))),
            *(builder.mul(part, ir.Constant(WORD, -CENTRE)) for part in sums),
            builder.add(builder.mul(count, ir.Constant(WORD, -ZERO)), ir.Constant(WORD, START_BITS)),
        ]
        for part, number in enumerate(written):
            b.store(number, builder.add(numbers, b.times(stride, part)), 4)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4), generate
