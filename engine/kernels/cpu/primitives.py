"""Primitives for compiled kernels, which take one array of 64-bit integers that holds addresses and sizes."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

import engine.kernels.cpu.openmp  # noqa: F401 (registers the symbols that kernels are compiled or loaded against)

thread_number = types.ExternalFunction("omp_get_thread_num", types.int32())

SIGNATURE = types.void(types.CPointer(types.int64))
OPTIONS = {"cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}
"""Fast-math without nnan and ninf: NaN and infinity keep their meaning, so that a broken row stays visible."""


@intrinsic
def pointer(typingctx, address):
    """Cast an integer to an address."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@intrinsic
def offset_pointer(typingctx, array, index):
    """Return a pointer to element `index` of an array of 64-bit integers."""

    def generate(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return array(array, index), generate


@intrinsic
def int64_pointer(typingctx, address):
    """Cast an address to a pointer to 64-bit integers."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(address), generate


@intrinsic
def address_of(typingctx, array):
    """Return the address of an array of 64-bit integers."""

    def generate(context, builder, signature, arguments):
        return builder.ptrtoint(arguments[0], ir.IntType(64))

    return types.int64(array), generate


def _reinterpret(source, target, kind):
    """Return a function that reads the 32 bits of a number as another type."""

    @intrinsic
    def reinterpret(typingctx, value):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], kind)

        return target(source), generate

    return reinterpret


float_of_bits = _reinterpret(types.uint32, types.float32, ir.FloatType())
bits_of_float = _reinterpret(types.float32, types.uint32, ir.IntType(32))


@intrinsic
def prefetch(typingctx, address):
    """Prefetch the cache line at an address that is read soon."""

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
    """View `size` float32 at an address."""
    return carray(pointer(address), size, np.float32)


@njit(inline="always")
def halves(address, size):
    """View `size` bfloat16 at an address, as 16-bit integers."""
    return carray(pointer(address), size, np.uint16)


@njit(inline="always")
def doubles(address, size):
    """View `size` float64 at an address."""
    return carray(pointer(address), size, np.float64)


@njit(inline="always")
def integers(address, size):
    """View `size` int64 at an address."""
    return carray(pointer(address), size, np.int64)


@njit(inline="always")
def widen(half):
    """Convert bfloat16 bits to float32."""
    return float_of_bits(np.uint32(half) << np.uint32(16))


@njit(inline="always")
def narrow(value):
    """Convert float32 to bfloat16 bits, rounded to nearest even; NaN stays NaN."""
    bits = bits_of_float(value)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.uint16(np.uint32(0x7FC0) if value != value else rounded)


@njit(inline="always")
def exp(x):
    """Return e^x in float32 with a relative error below 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2] (Cephes'
    expf)."""
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
    """Copy row `row` of a float32 or bfloat16 matrix of `size` columns into `out`."""
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
    """Write `values` to row `row` of a float32 or bfloat16 matrix of `size` columns."""
    if is_half:
        target = halves(address + row * size * 2, size)
        for i in range(size):
            target[i] = narrow(values[i])
    else:
        plain = floats(address + row * size * 4, size)
        for i in range(size):
            plain[i] = values[i]
