"""Vector operations of kernels, quantisation of a group to eight bits, dot products of bytes.

A group is 32 inputs, a panel 32 outputs in two vectors of 16. Unsigned bytes of weights times signed bytes of inputs
are summed, four at a time, into the lane of their output: by one instruction with AVX512-VNNI, by several with AVX2,
whose vectors are half as long. All sums are exact, so both give the same results.
"""

from __future__ import annotations

import ctypes
import sys
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
MOST_INPUT = 127
MOST_WORD = (1 << 15) - 1
ZERO = 128
"""The level of a weight of zero in eight bits."""
CENTRE = 32
"""The level of a weight of zero where scales have no minimum, in six bits."""
FRACTION_BITS = 23
STEP_BITS = 3
"""Leading bits of a step's fraction; the others are zero."""
STEPS = 1 << STEP_BITS
"""Steps between two powers of two."""
LEAST_STEP, MOST_STEP = 27 << FRACTION_BITS, 227 << FRACTION_BITS
"""The bits of 2^-100 and 2^100."""
VARIANT_BYTES = 4 * PANEL
"""Bytes of the numbers of all outputs of a panel."""
SIGNIFICAND, MAGIC, VARIANT, FIRST_START, LAST_START, START = range(6)
"""The numbers of a row in a record, as `quantize_two_groups` writes them."""
NUMBERS = 6
ROW_BYTES = 4 * NUMBERS + GROUP
"""Bytes of a row in a record."""

_ARCH_PRCTL, _REQUEST_STATE, _TILE_STATE = 158, 0x1023, 18
"""The system call on x86-64, its code and the state's number (linux/arch/x86/include/uapi/asm/prctl.h)."""

BYTE, WORD, FLOAT = ir.IntType(8), ir.IntType(32), ir.FloatType()
BYTES16 = ir.VectorType(BYTE, LANES)
BYTES32 = ir.VectorType(BYTE, 32)
BYTES64 = ir.VectorType(BYTE, 64)
WORDS = ir.VectorType(WORD, LANES)
PAIRS = ir.VectorType(ir.IntType(16), 2 * LANES)
HALF_PAIRS = ir.VectorType(ir.IntType(16), LANES)
HALF_WORDS = ir.VectorType(WORD, LANES // 2)
FLOATS = ir.VectorType(FLOAT, LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)
BFLOATS = ir.VectorType(ir.IntType(16), LANES)


def _has(*features: str) -> bool:
    present = llvm.get_host_cpu_features()
    return all(present.get(feature) for feature in features)


@cache
def is_available() -> bool:
    """Return True if this processor has the instructions: those of AVX512-VNNI, or AVX2 with what came beside it."""
    return has_dots() or _has("avx2", "fma", "f16c")


@cache
def has_dots() -> bool:
    """Return True if this processor adds dot products of four bytes by one instruction (AVX512-VNNI)."""
    return _has("avx512vnni", "avx512bw", "f16c")


def sums_of_two_overflow() -> bool:
    """Return True if libraries for this processor add products of two bytes in 16 bits, which may not hold them."""
    return _has("ssse3") and not (_has("avx512vnni") or _has("avxvnni"))


@cache
def has_pairs() -> bool:
    """Return True if this processor multiplies vectors of pairs of bfloat16."""
    return has_dots() and _has("avx512bf16")


@cache
def compiles_tiles() -> bool:
    """Return True if kernels for this processor may multiply matrices of bfloat16 in tiles (AMX)."""
    return has_pairs() and _has("amx-bf16")


@cache
def has_tiles() -> bool:
    """Return True if this process may use tiles: Linux saves them only for processes that ask (docs, x86/xstate)."""
    if not compiles_tiles() or sys.platform != "linux":
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_STATE) == 0


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

    def half(self, vector: Any, number: int) -> Any:
        """Return the first or second half of a vector's elements."""
        count = vector.type.count // 2
        lanes = ir.Constant(ir.VectorType(WORD, count), [*range(count * number, count * (number + 1))])
        return self.ir.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), lanes)

    def joined(self, first: Any, second: Any) -> Any:
        """Return the elements of two vectors, one behind the other."""
        count = 2 * first.type.count
        return self.ir.shuffle_vector(first, second, ir.Constant(ir.VectorType(WORD, count), [*range(count)]))

    def field(self, packed: Any, shift: int, mask: int) -> Any:
        """Shift 64 bytes by less than eight bits, to the right or, below zero, to the left, and mask what is kept."""
        if shift:
            move = self.ir.lshr if shift > 0 else self.ir.shl
            shifted = move(self.ir.bitcast(packed, PAIRS), ir.Constant(PAIRS, [abs(shift)] * 32))
            packed = self.ir.bitcast(shifted, BYTES64)
        return self.ir.and_(packed, ir.Constant(BYTES64, [mask] * 64))

    def look_up(self, table: Any, codes: Any) -> Any:
        """Return the table's byte for each of 64 codes below 16. table: 64 bytes, the same 16 four times."""
        if has_dots():
            return self.call("llvm.x86.avx512.pshuf.b.512", BYTES64, table, codes)
        halves = [(self.half(table, number), self.half(codes, number)) for number in range(2)]
        return self.joined(*[self.call("llvm.x86.avx2.pshuf.b", BYTES32, *half) for half in halves])

    def levels(self, words: list[Any]) -> Any:
        """Return four vectors of 16 integers from -127 to 127 as 64 bytes, one vector behind the other."""
        if not has_dots():
            parts = [self.ir.trunc(vector, BYTES16) for vector in words]
            return self.joined(self.joined(*parts[:2]), self.joined(*parts[2:]))
        pairs = [self.call("llvm.x86.avx512.packssdw.512", PAIRS, words[at], words[at + 1]) for at in (0, 2)]
        packed = self.ir.bitcast(self.call("llvm.x86.avx512.packsswb.512", BYTES64, *pairs), WORDS)
        # Packing leaves each vector's fourth part in each lane of 128 bits.
        in_order = self.shuffled(packed, packed, [4 * part + vector for vector in range(4) for part in range(4)])
        return self.ir.bitcast(in_order, BYTES64)

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

    def narrowed(self, floats: Any) -> Any:
        """Round 16 floats to bfloat16 in the lower half of each lane. NaN stays NaN only with AVX512-BF16."""
        if has_pairs():
            halves = self.call("llvm.x86.avx512bf16.cvtneps2bf16.512", BFLOATS, floats)
            return self.ir.zext(halves, WORDS)
        return self.ir.lshr(self.rounded(floats), self.words(16))

    def rounded(self, floats: Any) -> Any:
        """Round 16 floats, not NaN, to bfloat16 in the upper half of each lane, to nearest even; clear the lower."""
        bits = self.ir.bitcast(floats, WORDS)
        is_odd = self.ir.and_(self.ir.lshr(bits, self.words(16)), self.words(1))
        whole = self.ir.add(self.ir.add(bits, self.words(0x7FFF)), is_odd)
        return self.ir.and_(whole, self.words(-1 << 16))

    def dot_pairs(self, sums: Any, x: Any, y: Any) -> Any:
        """Add to each of 16 sums the products of two pairs of bfloat16, which are finite."""
        if has_pairs():
            return self.call("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, sums, x, y)
        low = [self.ir.bitcast(self.ir.shl(pairs, self.words(16)), FLOATS) for pairs in (x, y)]
        high = [self.ir.bitcast(self.ir.and_(pairs, self.words(-1 << 16)), FLOATS) for pairs in (x, y)]
        return self.fused(*low, self.fused(*high, sums))

    def swapped(self, vector: Any, distance: int) -> Any:
        """Exchange the lanes whose numbers differ by `distance`, a power of two."""
        return self.shuffled(vector, vector, [lane ^ distance for lane in range(LANES)])

    def select(self, lanes: list[bool], a: Any, b: Any) -> Any:
        """Return lanes of `a` where `lanes` is true, else of `b`."""
        return self.shuffled(a, b, [lane if is_first else lane + LANES for lane, is_first in enumerate(lanes)])

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Compute a * b + c (16 floats), rounded once."""
        return self.call("llvm.fma.v16f32", FLOATS, a, b, c)

    def keep_order(self) -> None:
        """Keep loads from moving across: else what is computed later fills the registers of what comes before."""
        self.ir.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.ir.call(cgutils.get_or_insert_function(self.ir.module, kind, name), arguments)


class DotSum:
    """Sixteen sums, to which dot products of four unsigned bytes of weights with four signed bytes of inputs are added.

    most: the largest weight there can be. Inputs are -MOST_INPUT to MOST_INPUT.

    AVX2 adds two products to 16 bits, where it saturates. As many of these are added there as always fit, then widened.
    """

    def __init__(self, b: VectorBuilder, start: Any, most: int) -> None:
        self._b = b
        self._sum = start
        self._at_once = MOST_WORD // (2 * MOST_INPUT * most)
        """Sums of two products that fit in 16 bits: 0 if weights have to be cut in two."""
        self._held: list[Any] = []
        """Two halves of sums in 16 bits."""
        self._count = 0
        """How many sums of two products each of these holds."""

    def add(self, weights: Any, inputs: Any) -> DotSum:
        b = self._b
        if has_dots():
            self._sum = b.call("llvm.x86.avx512.vpdpbusd.512", WORDS, self._sum, weights, inputs)
        elif self._at_once:
            self._hold(weights, inputs)
        else:
            for mask in (127, 128):
                self._hold(b.ir.and_(weights, ir.Constant(BYTES64, [mask] * 64)), inputs)
                self._widen()
        return self

    def total(self) -> Any:
        """Return the sums."""
        if self._count:
            self._widen()
        return self._sum

    def _hold(self, weights: Any, inputs: Any) -> None:
        b = self._b
        halves = [(b.half(weights, number), b.half(inputs, number)) for number in range(2)]
        products = [b.call("llvm.x86.avx2.pmadd.ub.sw", HALF_PAIRS, *half) for half in halves]
        self._held = [*map(b.ir.add, self._held, products)] if self._count else products
        self._count += 1
        if self._count == self._at_once:
            self._widen()

    def _widen(self) -> None:
        b, ones = self._b, ir.Constant(HALF_PAIRS, [1] * LANES)
        self._sum = b.ir.add(
            self._sum, b.joined(*[b.call("llvm.x86.avx2.pmadd.wd", HALF_WORDS, held, ones) for held in self._held])
        )
        self._count = 0


@intrinsic
def quantize_two_groups(typingctx, first, second, first_record, second_record, totals, second_bits):
    """Quantise 32 floats at each of two addresses to a row's part of a record: ROW_BYTES at each of two others.

    The record has NUMBERS numbers, then 32 levels (int8), multiples of the group's step (1 + v / STEPS) * 2^e:

        SIGNIFICAND  1 + v / STEPS, float32
        MAGIC        1.5 * 2^(e + 23), float32; its bits plus an integer n below 2^22 are those of MAGIC + n * 2^e
        VARIANT      v * VARIANT_BYTES
        FIRST_START  bits of MAGIC - CENTRE * sum of the first 16 levels; LAST_START of the last 16
        START        bits of MAGIC - ZERO * sum of all levels

    `totals` gets the sums of both groups' inputs as a pair of bfloat16. `second_bits` is -1, or 0 if there is no second
    group: then its sum is 0.
    Returns the bits of the larger step. If it is above MOST_STEP, a number is not finite or too large.
    """

    def generate(context, builder, signature, arguments):
        b = VectorBuilder(builder)
        sources, records, (totals, second_bits) = arguments[:2], arguments[2:4], arguments[4:]
        inputs = [[b.load(FLOATS, b.at(source, 64 * part), 4) for part in range(2)] for source in sources]
        # NOTE: as integers the bits of NaN exceed those of every number.
        largest = [b.largest(*(b.magnitude(half) for half in halves)) for halves in inputs]
        # The first eight lanes are of the first group, the last eight of the second.
        largest = b.largest(*(b.shuffled(*largest, [*range(at, at + 8), *range(at + 16, at + 24)]) for at in (0, 8)))
        for distance in (4, 2, 1):
            largest = b.largest(largest, b.swapped(largest, distance))
        step = builder.fmul(builder.bitcast(largest, FLOATS), b.floats(float(np.float32(1 / 127))))
        further = (1 << FRACTION_BITS - STEP_BITS) - 1
        step = builder.and_(builder.add(builder.bitcast(step, WORDS), b.words(further)), b.words(~further))
        of_both = [builder.extract_element(step, ir.Constant(WORD, lane)) for lane in (0, 8)]
        step = b.call("llvm.umin.v16i32", WORDS, b.largest(step, b.words(LEAST_STEP)), b.words(MOST_STEP))
        level = builder.bitcast(step, FLOATS)
        inverse = builder.fdiv(b.floats(1.0), level)
        words = []
        for number, halves in enumerate(inputs):
            of_group = b.shuffled(inverse, inverse, [8 * number] * LANES)
            for half in halves:
                rounded = b.call("llvm.rint.v16f32", FLOATS, builder.fmul(half, of_group))
                words.append(builder.fptosi(rounded, WORDS))
        levels = b.levels(words)
        halves = DotSum(b, b.words(0), most=1).add(ir.Constant(BYTES64, [1] * 64), levels).total()
        packed = builder.bitcast(levels, WORDS)
        for distance in (2, 1):
            halves = builder.add(halves, b.swapped(halves, distance))
        count = builder.add(halves, b.swapped(halves, 4))
        total = b.rounded(builder.fmul(level, builder.sitofp(count, FLOATS)))
        first, second = (builder.extract_element(total, ir.Constant(WORD, lane)) for lane in (0, 8))
        second = builder.and_(second, builder.trunc(second_bits, WORD))
        b.store(builder.or_(builder.lshr(first, ir.Constant(WORD, 16)), second), totals, 4)
        lanes = [lane % 8 for lane in range(LANES)]
        exponent = builder.and_(step, b.words(255 << FRACTION_BITS))
        magic = builder.add(exponent, b.words((FRACTION_BITS << FRACTION_BITS) + (1 << FRACTION_BITS - 1)))
        significand = builder.add(builder.sub(step, exponent), b.words(127 << FRACTION_BITS))
        variant = builder.and_(builder.lshr(step, b.words(FRACTION_BITS - STEP_BITS)), b.words(STEPS - 1))
        numbers = b.select([lane == MAGIC for lane in lanes], magic, significand)
        variant = builder.mul(variant, b.words(VARIANT_BYTES))
        numbers = b.select([lane == VARIANT for lane in lanes], variant, numbers)
        # Lanes 3 and 4 of a group are in its first and last half.
        sums = b.select([lane == START for lane in lanes], count, halves)
        sums = builder.mul(sums, ir.Constant(WORDS, [-ZERO if lane == START else -CENTRE for lane in lanes]))
        numbers = b.select([lane < FIRST_START for lane in lanes], numbers, builder.add(magic, sums))
        for number, record in enumerate(records):
            of_group = [*range(8 * number, 8 * number + 8)]
            b.store(b.shuffled(numbers, numbers, of_group), record, 4)
            b.store(b.shuffled(packed, packed, of_group), b.at(record, 4 * NUMBERS), 4)  # over the last two lanes
        larger = builder.select(builder.icmp_unsigned(">", *of_both), *of_both)
        return builder.zext(larger, b.integer)

    return types.int64(*[types.int64] * 6), generate
