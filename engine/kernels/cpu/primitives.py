"""What the kernels are written in: arrays at addresses, bits and floats, bfloat16, a vectorisable exp, the thread's number.

A kernel gets one array of 64-bit integers: addresses and sizes.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

import engine.kernels.cpu.openmp  # noqa: F401 (its symbols must be there before kernels are compiled or loaded)

thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())

SIGNATURE = types.void(types.CPointer(types.int64))
OPTIONS = {"cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
"""NaN and infinity keep their meaning: a broken row must stay visible."""


@intrinsic
def pointer(typingctx, address):
    """An integer as an address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic
def words_at(typingctx, words, index):
    """The array of 64-bit integers that begins at another's element `index`."""

    def generate(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return words(words, index), generate


@intrinsic
def words_from(typingctx, address):
    """The array of 64-bit integers at an address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(address), generate


@intrinsic
def address_of(typingctx, words):
    """Where an array of 64-bit integers begins."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(words), generate


@intrinsic
def float_of_bits(typingctx, bits):
    """The float32 with these 32 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def bits_of_float(typingctx, value):
    """The 32 bits of a float32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def prefetch(typingctx, address):
    """Ask for the cache line at an address that is read soon."""

    def generate(context, builder, signature, arguments):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
        )
        place = builder.inttoptr(arguments[0], byte)
        builder.call(function, [place, ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return types.none(address), generate


@njit(inline="always")
def floats(address, size):
    """float32 array at an address."""
    return carray(pointer(address), size, np.float32)


@njit(inline="always")
def halves(address, size):
    """bfloat16 array at an address, as 16-bit integers."""
    return carray(pointer(address), size, np.uint16)


@njit(inline="always")
def doubles(address, size):
    """float64 array at an address."""
    return carray(pointer(address), size, np.float64)


@njit(inline="always")
def integers(address, size):
    """int64 array at an address."""
    return carray(pointer(address), size, np.int64)


@njit(inline="always")
def widen(half):
    """bfloat16 bits to float32."""
    return float_of_bits(np.uint32(half) << np.uint32(16))


@njit(inline="always")
def narrow(value):
    """float32 to bfloat16 bits, rounded to nearest even; NaN stays NaN."""
    bits = bits_of_float(value)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(np.uint32(0x7FC0) if value != value else rounded)


@njit(inline="always")
def exp(x):
    """e to the power x in float32, within 2e-7 of it relatively: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes' expf)."""
    x = min(max(x, np.float32(-87.0)), np.float32(88.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375)
    r = r + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    return p * float_of_bits(np.uint32(np.int32(n) + np.int32(127)) << np.uint32(23))


@njit(inline="always")
def load_row(address, is_half, row, size, out):
    """Read row `row` of a matrix of `size` columns, float32 or bfloat16, into `out`."""
    if is_half:
        source = halves(address + row * size * 2, size)
        for i in range(size):
            out[i] = widen(source[i])
    else:
        plain = floats(address + row * size * 4, size)
        for i in range(size):
            out[i] = plain[i]


@njit(inline="always")
def store_row(address, is_half, row, size, values):
    """Write `values` as row `row` of a matrix of `size` columns."""
    if is_half:
        target = halves(address + row * size * 2, size)
        for i in range(size):
            target[i] = narrow(values[i])
    else:
        plain = floats(address + row * size * 4, size)
        for i in range(size):
            plain[i] = values[i]
