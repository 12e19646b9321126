"""How threads share a program: a few words of memory on which they find the operation under way and take its parts as they come.

Who finds no part left waits for the others' last; whoever finishes that puts up the next operation. No thread is waited for but one in the
middle of a part. So one whose core is busy with something else costs the rest its share of the work and nothing more; with equal shares and
a barrier behind each, two threads that the system has put on one core would wait for each other hundreds of times a step.

Word STATE holds the number of operations ever put up, as far as it has bits, then COUNT_BITS each for the parts of this one and for those
taken; no parts: nothing is under way. Taking adds one to it, so that what was taken and of what is one reading. The other words change only
while nothing can be taken.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import cfunc, njit, types

from engine.kernels.cpu.atomics import (
    add_atomic,
    exchange_atomic,
    let_others_run,
    load_atomic,
    pause,
    replace_atomic,
    store_atomic,
)
from engine.kernels.cpu.primitives import OPTIONS, SIGNATURE, address_of, thread_number, words_from
from engine.kernels.cpu.program import FIRST, STRIDE, run_part

STATE, DONE, PROGRAM, OPERATION, SLEEPERS, IS_OVER, SEMAPHORE, SIZE = 0, 64, 128, 136, 192, 200, 256, 320
"""Where the words lie, in bytes: the operation under way, its finished parts, the program's address, the operation's place in it; those who
sleep, whether they shall leave, what wakes them."""
COUNT_BITS = 12
COUNT_MASK = (1 << COUNT_BITS) - 1
MOST_PARTS = 1 << COUNT_BITS - 1
"""Each thread may add one more to those that were taken."""
NUMBER_MASK = (1 << 63 - 2 * COUNT_BITS) - 1
"""What numbers of operations keep, so that they begin anew after months and never are negative."""
PAUSES = 1000
"""Of some 40 ns each, that a thread waits before it lets others run: it may stand in the way of the one it waits for."""
YIELDS = 2000
"""How often a helper lets others run before it sleeps."""

_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
_post = types.ExternalFunction("sem_post", types.int32(types.int64))
_LEADING = types.void(types.int64, types.CPointer(types.int64))
_HELPING = types.void(types.int64, types.int64)


def make_board() -> tuple[ctypes.Array, int]:
    """Memory of a board, and the address of its words in it."""
    memory = (ctypes.c_char * (SIZE + 64))()
    return memory, -(-ctypes.addressof(memory) // 64) * 64


@njit(**OPTIONS)
def _put_up(board, index, operations, program):
    """Let the parts of operation `index` be taken; behind the last one, nothing. Wakes who sleeps."""
    parts = program[FIRST + index * STRIDE + 1] if index < operations else np.int64(0)
    store_atomic(board + DONE, 0)
    store_atomic(board + OPERATION, index)
    number = ((load_atomic(board + STATE) >> (2 * COUNT_BITS)) + 1) & NUMBER_MASK
    exchange_atomic(board + STATE, (number << (2 * COUNT_BITS)) + (parts << COUNT_BITS))
    if parts > 1 and load_atomic(board + SLEEPERS) > 0:
        for _ in range(exchange_atomic(board + SLEEPERS, 0)):
            _post(board + SEMAPHORE)


@njit(**OPTIONS)
def _take_part(board, thread, last):
    """Run a part if there is one. `last`: the number of the operation that this thread took one of before; the new one, or -1."""
    state = load_atomic(board + STATE)
    if state & COUNT_MASK >= (state >> COUNT_BITS) & COUNT_MASK:
        return np.int64(-1)
    state = add_atomic(board + STATE, 1)
    number, parts, part = state >> (2 * COUNT_BITS), (state >> COUNT_BITS) & COUNT_MASK, state & COUNT_MASK
    if part >= parts:
        return np.int64(-1)
    program, index = words_from(load_atomic(board + PROGRAM)), load_atomic(board + OPERATION)
    run_part(program, index, thread, part, parts, number != last)
    if add_atomic(board + DONE, 1) == parts - 1:
        _put_up(board, index + 1, program[0], program)
    return number


@njit(**OPTIONS)
def _work_until_done(board, thread):
    """Take parts until nothing is under way."""
    last, waited = np.int64(-1), 0
    while (load_atomic(board + STATE) >> COUNT_BITS) & COUNT_MASK > 0:
        taken = _take_part(board, thread, last)
        if taken >= 0:
            last, waited = taken, 0
            continue
        waited += 1
        if waited < PAUSES:
            pause()
        else:
            let_others_run()


@cfunc(_LEADING, **OPTIONS)
def put_up(board, program):
    """Begin a program, which others then run."""
    store_atomic(board + PROGRAM, address_of(program))
    _put_up(board, np.int64(0), program[0], program)


@cfunc(SIGNATURE, **OPTIONS)
def work(board):
    """Take part in the program that was put up, as a thread of OpenMP."""
    _work_until_done(address_of(board), np.int64(thread_number()))


@cfunc(_LEADING, **OPTIONS)
def lead(board, program):
    """Run a program with the helpers of the board; returns when it is done."""
    store_atomic(board + PROGRAM, address_of(program))
    _put_up(board, np.int64(0), program[0], program)
    _work_until_done(board, np.int64(0))


@njit(**OPTIONS)
def _sleep(board):
    """Wait to be woken, unless there is something to do."""
    add_atomic(board + SLEEPERS, 1)
    state = load_atomic(board + STATE)
    if state & COUNT_MASK < (state >> COUNT_BITS) & COUNT_MASK or load_atomic(board + IS_OVER) != 0:
        while True:
            sleepers = load_atomic(board + SLEEPERS)
            if sleepers == 0:
                break  # somebody has taken this thread for one that sleeps, and wakes it
            if replace_atomic(board + SLEEPERS, sleepers, sleepers - 1) == sleepers:
                return
    while _wait(board + SEMAPHORE) != 0:
        pass


@cfunc(_HELPING, **OPTIONS)
def help_along(board, thread):
    """Take parts of whatever is put up, and sleep in between, until `dismiss`."""
    last, waited = np.int64(-1), 0
    while load_atomic(board + IS_OVER) == 0:
        taken = _take_part(board, thread, last)
        if taken >= 0:
            last, waited = taken, 0
            continue
        waited += 1
        if waited < PAUSES:
            pause()
        elif waited < PAUSES + YIELDS:
            let_others_run()
        else:
            _sleep(board)
            waited = 0


@cfunc(types.void(types.int64), **OPTIONS)
def dismiss(board):
    """Let the helpers leave."""
    exchange_atomic(board + IS_OVER, 1)
    for _ in range(exchange_atomic(board + SLEEPERS, 0)):
        _post(board + SEMAPHORE)
