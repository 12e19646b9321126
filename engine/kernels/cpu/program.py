"""Programs: lists of operations, each cut into parts, and the compiled functions that run one.

A program is an array of 64-bit integers: the operations START to END are those to run, then come STRIDE integers for
each operation: its index in KERNELS, the number of its parts, and its arguments in the order that the kernel lists,
rows first.
"""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
from numba import cfunc, njit, types

from engine.kernels.cpu import (
    attention,
    flash_attention,
    integer_product,
    low_rank,
    row_records,
    rows,
    sampling,
)
from engine.kernels.cpu.integer_vectors import has_pairs, is_available
from engine.kernels.cpu.primitives import OPTIONS, SIGNATURE, offset_pointer

START, END, FIRST = 0, 1, 2
STRIDE = 40
KERNELS = (
    "add_normalize gate quantize rotate add_bias store attend quantize_groups multiply forbid weigh_blocks draw "
    "normalize_heads flash_attend shrink expand".split()
)


@njit(**OPTIONS)
def _unavailable(a, thread, part, parts):
    """Stand in for a kernel that this processor has no instructions for; it is never called."""


@njit(**OPTIONS)
def _unavailable_multiply(a, thread, part, parts, is_first):
    """Stand in for `multiply`, which has one more parameter."""


_quantize_groups = row_records.quantize_groups if is_available() else _unavailable
_flash_attend = flash_attention.attend if has_pairs() else _unavailable
_multiply = integer_product.multiply if is_available() else _unavailable_multiply


def assemble(operations: list[int]) -> ctypes.Array:
    """Make a program that runs all of its operations, STRIDE integers each."""
    return (ctypes.c_int64 * (FIRST + len(operations)))(0, len(operations) // STRIDE, *operations)


def parts_and_rows(program: ctypes.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return writable views of the number of parts and of rows of each operation."""
    whole = np.frombuffer(program, dtype=np.int64)
    return whole[FIRST + 1 :: STRIDE], whole[FIRST + 2 :: STRIDE]


_RUN_PART = types.void(types.CPointer(types.int64), types.int64, types.int64, types.int64, types.int64, types.boolean)


@cfunc(_RUN_PART, **OPTIONS)
def _run_part(program, index, thread, part, parts, is_first):
    """Run part `part` of `parts` of operation `index`. `is_first`: it is the first one that this thread takes of it."""
    kernel = program[FIRST + index * STRIDE]
    a = offset_pointer(program, np.int64(FIRST + index * STRIDE + 2))
    if kernel == 0:
        rows.add_normalize(a, thread, part, parts)
    elif kernel == 1:
        rows.gate(a, thread, part, parts)
    elif kernel == 2:
        rows.quantize(a, thread, part, parts)
    elif kernel == 3:
        rows.rotate(a, thread, part, parts)
    elif kernel == 4:
        rows.add_bias(a, thread, part, parts)
    elif kernel == 5:
        attention.store(a, thread, part, parts)
    elif kernel == 6:
        attention.attend(a, thread, part, parts)
    elif kernel == 7:
        _quantize_groups(a, thread, part, parts)
    elif kernel == 8:
        _multiply(a, thread, part, parts, is_first)
    elif kernel == 9:
        sampling.forbid(a, thread, part, parts)
    elif kernel == 10:
        sampling.weigh_blocks(a, thread, part, parts)
    elif kernel == 11:
        sampling.draw(a, thread, part, parts)
    elif kernel == 12:
        rows.normalize_heads(a, thread, part, parts)
    elif kernel == 13:
        _flash_attend(a, thread, part, parts)
    elif kernel == 14:
        low_rank.shrink(a, thread, part, parts)
    else:
        low_rank.expand(a, thread, part, parts)


llvm.add_symbol("lightcone_run_part", _run_part.address)
run_part = types.ExternalFunction("lightcone_run_part", _RUN_PART)
"""The same as a symbol: functions that call it hold no copy of the kernels, which take long to compile."""


@cfunc(SIGNATURE, **OPTIONS)
def run_sequentially(program):
    """Run the operations, each as one part, on the calling thread."""
    for index in range(program[START], program[END]):
        run_part(program, index, np.int64(0), np.int64(0), np.int64(1), True)
