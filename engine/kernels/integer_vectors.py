"""What the kernels of integer weights share: vectors of bytes and words, rows quantised to eight bits group by group, VNNI's integer dots.

A group is 32 inputs, a tile 16 outputs; a byte of weights times a signed byte of input, four at a time, is summed into the tile's lanes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

GROUP = 32
TILE = 16
ROWS_AT_ONCE = (4, 2, 1)
AHEAD_BYTES = 2560
"""How far ahead of the block in work memory is asked for; the processor's own prefetcher stops at each page."""

BYTE, WORD = ir.IntType(8), ir.IntType(32)
BYTES16 = ir.VectorType(BYTE, TILE)
BYTES64 = ir.VectorType(BYTE, 64)
WORDS = ir.VectorType(WORD, TILE)
FLOATS = ir.VectorType(ir.FloatType(), TILE)
HALVES = ir.VectorType(ir.HalfType(), TILE)
FUSED = ("contract",)


@cache
def is_available() -> bool:
    """Whether this processor has the instructions."""
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512vnni") and features.get("avx512f") and features.get("f16c"))


class VectorBuilder:
    """The vector operations that both intrinsics are written in. Addresses are integers."""

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

    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, TILE)
        first = self.ir.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(WORD, 0))
        return self.ir.shuffle_vector(first, ir.Constant(kind, ir.Undefined), ir.Constant(WORDS, [0] * TILE))

    def prefetch(self, address: Any) -> None:
        byte = BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, WORD, WORD, WORD])
        function = cgutils.get_or_insert_function(self.ir.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(WORD, flag) for flag in (0, 3, 1)]
        self.ir.call(function, [self.ir.inttoptr(address, byte), *flags])

    def dot(self, sums: Any, weights: Any, inputs_at: Any) -> Any:
        """Sums (16 words) plus, lane by lane, four unsigned bytes of weights times the four signed bytes at an address."""
        four = self.splat(self.load(WORD, inputs_at, 4))
        return self.call("llvm.x86.avx512.vpdpbusd.512", WORDS, sums, weights, self.ir.bitcast(four, BYTES64))

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, kind, name), arguments)


@intrinsic
def quantize_group(typingctx, source, levels, scale, total):
    """Quantise 32 floats: levels (int8), the size of a level (float32) and the level's size times the sum of the levels (float32)."""

    def generate(context, builder, signature, arguments):
        source, levels, scale, total = arguments
        b = VectorBuilder(builder)
        halves = [b.load(FLOATS, b.at(source, 64 * part), 4) for part in range(2)]
        sizes = [b.call("llvm.fabs.v16f32", FLOATS, half) for half in halves]
        largest = b.call("llvm.vector.reduce.fmax.v16f32", ir.FloatType(), b.call("llvm.maxnum.v16f32", FLOATS, *sizes))
        broken = b.call(
            "llvm.vector.reduce.or.v16i1", ir.IntType(1), builder.or_(*[builder.fcmp_unordered("uno", half, half) for half in halves])
        )
        level = builder.fmul(largest, ir.Constant(ir.FloatType(), float(np.float32(1 / 127))))
        least = ir.Constant(ir.FloatType(), float(np.float32(1e-30)))
        inverse = builder.fdiv(ir.Constant(ir.FloatType(), 1.0), b.call("llvm.maxnum.f32", ir.FloatType(), level, least))
        # NOTE: a maximum passes over NaN, which has to stay visible.
        level = builder.select(broken, ir.Constant(ir.FloatType(), float("nan")), level)
        words = []
        for part, half in enumerate(halves):
            rounded = b.call("llvm.rint.v16f32", FLOATS, builder.fmul(half, b.splat(inverse)))
            words.append(builder.fptosi(rounded, WORDS))
            b.store(builder.trunc(words[-1], BYTES16), b.at(levels, TILE * part), 1)
        count = b.call("llvm.vector.reduce.add.v16i32", WORD, builder.add(*words))
        b.store(level, scale, 4)
        b.store(builder.fmul(level, builder.sitofp(count, ir.FloatType())), total, 4)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, types.int64), generate
