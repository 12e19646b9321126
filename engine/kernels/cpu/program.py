"""Programs: lists of operations, each cut into parts, and the compiled functions that run one.

A program is an array of 64-bit integers: the operations START to END are those to run, then come STRIDE integers for
each operation: its index in KERNELS, the number of its parts, and its arguments in the order that the kernel lists,
rows first.
"""

from __future__ import annotations

import ctypes
from typing import Any

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
from engine.kernels.cpu.vectors import EXACT

START, END, FIRST = 0, 1, 2
STRIDE = 40
KERNELS = (
    "add_normalize gate quantize rotate add_bias store attend quantize_groups multiply forbid weigh_blocks draw "
    "normalize_heads flash_attend shrink expand".split()
)


_RUN_PART = types.void(types.CPointer(types.int64), types.int64, types.int64, types.int64, types.int64, types.boolean)
_PART = types.void(types.CPointer(types.int64), types.int64, types.int64, types.int64)
_PART_OF_PRODUCT = types.void(*_PART.args, types.boolean)
_COMPILED = []
"""What is compiled, which must not be freed."""


def _symbol(function: Any, signature: Any, options: dict[str, Any] = OPTIONS) -> types.ExternalFunction:
    """Compile a function and return it as a symbol: what calls it holds no copy, which would be compiled once more."""
    name = f"lightcone_{function.__module__.replace('.', '_')}_{function.__name__}"
    _COMPILED.append(compiled := cfunc(signature, **options)(function))
    llvm.add_symbol(name, compiled.address)
    return types.ExternalFunction(name, signature)


@njit(**OPTIONS)
def _unavailable(a, thread, part, parts):
    """Stand in for a kernel that this processor has no instructions for; it is never called."""


@njit(**OPTIONS)
def _unavailable_multiply(a, thread, part, parts, is_first):
    """Stand in for `multiply`, which has one more parameter."""


_add_normalize = _symbol(rows.add_normalize, _PART)
_gate = _symbol(rows.gate, _PART)
_quantize = _symbol(rows.quantize, _PART)
_rotate = _symbol(rows.rotate, _PART)
_add_bias = _symbol(rows.add_bias, _PART)
_normalize_heads = _symbol(rows.normalize_heads, _PART)
_store = _symbol(attention.store, _PART)
_attend = _symbol(attention.attend, _PART)
_forbid = _symbol(sampling.forbid, _PART)
_weigh_blocks = _symbol(sampling.weigh_blocks, _PART)
_draw = _symbol(sampling.draw, _PART)
_shrink = _symbol(low_rank.shrink, _PART)
_expand = _symbol(low_rank.expand, _PART)
_flash_attend = _symbol(flash_attention.attend, _PART, {"cache": True, **EXACT}) if has_pairs() else _unavailable
_quantize_groups = _symbol(row_records.quantize_groups, _PART) if is_available() else _unavailable
_multiply = _symbol(integer_product.multiply, _PART_OF_PRODUCT) if is_available() else _unavailable_multiply


def assemble(operations: list[int]) -> ctypes.Array:
    """Make a program that runs all of its operations, STRIDE integers each."""
    return (ctypes.c_int64 * (FIRST + len(operations)))(0, len(operations) // STRIDE, *operations)


def parts_and_rows(program: ctypes.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return writable views of the number of parts and of rows of each operation."""
    whole = np.frombuffer(program, dtype=np.int64)
    return whole[FIRST + 1 :: STRIDE], whole[FIRST + 2 :: STRIDE]


def _run_part(program, index, thread, part, parts, is_first):
    """Run part `part` of `parts` of operation `index`. `is_first`: it is the first one that this thread takes of it."""
    kernel = program[FIRST + index * STRIDE]
    a = offset_pointer(program, np.int64(FIRST + index * STRIDE + 2))
    if kernel == 0:
        _add_normalize(a, thread, part, parts)
    elif kernel == 1:
        _gate(a, thread, part, parts)
    elif kernel == 2:
        _quantize(a, thread, part, parts)
    elif kernel == 3:
        _rotate(a, thread, part, parts)
    elif kernel == 4:
        _add_bias(a, thread, part, parts)
    elif kernel == 5:
        _store(a, thread, part, parts)
    elif kernel == 6:
        _attend(a, thread, part, parts)
    elif kernel == 7:
        _quantize_groups(a, thread, part, parts)
    elif kernel == 8:
        _multiply(a, thread, part, parts, is_first)
    elif kernel == 9:
        _forbid(a, thread, part, parts)
    elif kernel == 10:
        _weigh_blocks(a, thread, part, parts)
    elif kernel == 11:
        _draw(a, thread, part, parts)
    elif kernel == 12:
        _normalize_heads(a, thread, part, parts)
    elif kernel == 13:
        _flash_attend(a, thread, part, parts)
    elif kernel == 14:
        _shrink(a, thread, part, parts)
    else:
        _expand(a, thread, part, parts)


run_part = _symbol(_run_part, _RUN_PART)


@cfunc(SIGNATURE, **OPTIONS)
def run_sequentially(program):
    """Run the operations, each as one part, on the calling thread."""
    for index in range(program[START], program[END]):
        run_part(program, index, np.int64(0), np.int64(0), np.int64(1), True)
