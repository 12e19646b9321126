"""One compiled function that runs a list of operations on every thread of the team, with a barrier between any two.

A program is an array of 64-bit integers: the number of operations, then STRIDE integers for each, its number in KERNELS and its arguments
in the order that the kernel lists. A single operation is a program of one.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, njit

from engine.kernels import attention, integer_product, rows, sampling
from engine.kernels.integer_vectors import is_available
from engine.kernels.primitives import OPTIONS, SIGNATURE, team_barrier, thread_count, thread_number, words_at

STRIDE = 32
KERNELS = (
    "add_normalize",
    "gate",
    "quantize",
    "rotate",
    "add_bias",
    "attend",
    "multiply",
    "forbid",
    "weigh_blocks",
    "draw",
)


@njit(**OPTIONS)
def _unavailable(a, thread, threads):
    """Stands for a kernel that this processor has no instructions for; nobody calls it."""


_add_normalize, _gate, _quantize, _rotate, _add_bias = rows.add_normalize, rows.gate, rows.quantize, rows.rotate, rows.add_bias
_attend = attention.attend
_forbid, _weigh_blocks, _draw = sampling.forbid, sampling.weigh_blocks, sampling.draw
_multiply = integer_product.multiply if is_available() else _unavailable


@cfunc(SIGNATURE, **OPTIONS)
def run(program):
    """Run the operations in order; returns when this thread's part of the last is done."""
    thread, threads = thread_number(), thread_count()
    for index in range(program[0]):
        if index and threads > 1:
            team_barrier()
        kernel = program[1 + index * STRIDE]
        a = words_at(program, np.int64(2 + index * STRIDE))
        if kernel == 0:
            _add_normalize(a, thread, threads)
        elif kernel == 1:
            _gate(a, thread, threads)
        elif kernel == 2:
            _quantize(a, thread, threads)
        elif kernel == 3:
            _rotate(a, thread, threads)
        elif kernel == 4:
            _add_bias(a, thread, threads)
        elif kernel == 5:
            _attend(a, thread, threads)
        elif kernel == 6:
            _multiply(a, thread, threads)
        elif kernel == 7:
            _forbid(a, thread, threads)
        elif kernel == 8:
            _weigh_blocks(a, thread, threads)
        else:
            _draw(a, thread, threads)
