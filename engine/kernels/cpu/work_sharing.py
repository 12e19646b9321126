"""How threads share the parts of a program: each takes the next free part of the current operation until none is left.

A thread that finds no free part waits for the others to finish theirs; the thread that finishes the last part publishes
the next operation. So a thread whose core is busy elsewhere costs the others its share of the work and nothing more.
With equal shares and a barrier, two threads on one core would wait for each other hundreds of times a step.

The threads share memory of SIZE bytes; `shared` is its address. The integer at STATE packs the number of operations
ever published (as far as it has bits), then COUNT_BITS each for the parts of the current operation and for the parts
taken. Taking a part adds one, so one atomic read tells which part was taken and of which operation. The other integers
change only while no part can be taken.

    submit          publish a program; OpenMP's threads then call `openmp_worker`
    run_as_leader   publish a program and run it with the threads of `worker_loop`
    worker_loop     take parts of every program that is published, and sleep in between
    shutdown        make `worker_loop` return
"""

from __future__ import annotations

import ctypes

import numpy as np
from numba import cfunc, njit, types

from engine.kernels.cpu.atomics import (
    add_atomic,
    exchange_atomic,
    load_atomic,
    pause,
    replace_atomic,
    store_atomic,
    yield_core,
)
from engine.kernels.cpu.primitives import OPTIONS, SIGNATURE, address_of, int64_pointer, thread_number
from engine.kernels.cpu.program import END, FIRST, START, STRIDE, run_part

STATE, DONE, PROGRAM, OPERATION, SLEEPERS, IS_SHUT_DOWN, SEMAPHORE, SIZE = 0, 64, 128, 136, 192, 200, 256, 320
"""Offsets in bytes: the current operation, its finished parts, the program's address, the operation's index in it, the
number of sleeping threads, whether they must return, the semaphore that wakes them.
"""
COUNT_BITS = 12
COUNT_MASK = (1 << COUNT_BITS) - 1
MAX_PARTS = 1 << COUNT_BITS - 1
"""Half of what COUNT_BITS can count: each thread may add one more to the parts taken."""
NUMBER_MASK = (1 << 63 - 2 * COUNT_BITS) - 1
"""Operation numbers wrap around after months and are never negative."""
PAUSES = 1000
"""Pauses of some 40 ns each before a waiting thread yields its core, perhaps to the thread it waits for."""
YIELDS = 2000
"""Yields before a worker sleeps."""

_wait = types.ExternalFunction("sem_wait", types.int32(types.int64))
_post = types.ExternalFunction("sem_post", types.int32(types.int64))
_LEADING = types.void(types.int64, types.CPointer(types.int64))
_WORKING = types.void(types.int64, types.int64)


def allocate_shared() -> tuple[ctypes.Array, int]:
    """Return zeroed memory and the aligned address in it that the functions below take as `shared`."""
    memory = (ctypes.c_char * (SIZE + 64))()
    return memory, -(-ctypes.addressof(memory) // 64) * 64


@njit(**OPTIONS)
def _publish(shared, index, end, program):
    """Make operation `index` the current one, from `end` on none, and wake sleeping threads if there is work."""
    parts = program[FIRST + index * STRIDE + 1] if index < end else np.int64(0)
    store_atomic(shared + DONE, 0)
    store_atomic(shared + OPERATION, index)
    number = ((load_atomic(shared + STATE) >> (2 * COUNT_BITS)) + 1) & NUMBER_MASK
    exchange_atomic(shared + STATE, (number << (2 * COUNT_BITS)) + (parts << COUNT_BITS))
    if parts > 1 and load_atomic(shared + SLEEPERS) > 0:
        for _ in range(exchange_atomic(shared + SLEEPERS, 0)):
            _post(shared + SEMAPHORE)


@njit(**OPTIONS)
def _take_part(shared, thread, last):
    """Run a free part, if any. Return the number of its operation, or -1. `last`: what it returned before."""
    state = load_atomic(shared + STATE)
    if state & COUNT_MASK >= (state >> COUNT_BITS) & COUNT_MASK:
        return np.int64(-1)
    state = add_atomic(shared + STATE, 1)
    number, parts, part = state >> (2 * COUNT_BITS), (state >> COUNT_BITS) & COUNT_MASK, state & COUNT_MASK
    if part >= parts:
        return np.int64(-1)
    program, index = int64_pointer(load_atomic(shared + PROGRAM)), load_atomic(shared + OPERATION)
    run_part(program, index, thread, part, parts, number != last)
    if add_atomic(shared + DONE, 1) == parts - 1:
        _publish(shared, index + 1, program[END], program)
    return number


@njit(**OPTIONS)
def _run_until_done(shared, thread):
    """Take parts until there is no current operation."""
    last, waited = np.int64(-1), 0
    while (load_atomic(shared + STATE) >> COUNT_BITS) & COUNT_MASK > 0:
        taken = _take_part(shared, thread, last)
        if taken >= 0:
            last, waited = taken, 0
            continue
        waited += 1
        if waited < PAUSES:
            pause()
        else:
            yield_core()


@cfunc(_LEADING, **OPTIONS)
def submit(shared, program):
    """Publish a program for other threads to run."""
    store_atomic(shared + PROGRAM, address_of(program))
    _publish(shared, program[START], program[END], program)


@cfunc(SIGNATURE, **OPTIONS)
def openmp_worker(shared):
    """Take parts of the submitted program, on a thread of OpenMP."""
    _run_until_done(address_of(shared), np.int64(thread_number()))


@cfunc(_LEADING, **OPTIONS)
def run_as_leader(shared, program):
    """Run a program together with the worker threads; return when it is done."""
    store_atomic(shared + PROGRAM, address_of(program))
    _publish(shared, program[START], program[END], program)
    _run_until_done(shared, np.int64(0))


@njit(**OPTIONS)
def _sleep(shared):
    """Sleep until woken; return at once if there is work or a shutdown."""
    add_atomic(shared + SLEEPERS, 1)
    state = load_atomic(shared + STATE)
    if state & COUNT_MASK < (state >> COUNT_BITS) & COUNT_MASK or load_atomic(shared + IS_SHUT_DOWN) != 0:
        while True:
            sleepers = load_atomic(shared + SLEEPERS)
            if sleepers == 0:
                break  # another thread has counted this one as asleep and posts to wake it: consume that post below
            if replace_atomic(shared + SLEEPERS, sleepers, sleepers - 1) == sleepers:
                return
    while _wait(shared + SEMAPHORE) != 0:
        pass


@cfunc(_WORKING, **OPTIONS)
def worker_loop(shared, thread):
    """Take parts of every published operation and sleep in between, until `shutdown`."""
    last, waited = np.int64(-1), 0
    while load_atomic(shared + IS_SHUT_DOWN) == 0:
        taken = _take_part(shared, thread, last)
        if taken >= 0:
            last, waited = taken, 0
            continue
        waited += 1
        if waited < PAUSES:
            pause()
        elif waited < PAUSES + YIELDS:
            yield_core()
        else:
            _sleep(shared)
            waited = 0


@cfunc(types.void(types.int64), **OPTIONS)
def shutdown(shared):
    """Make every `worker_loop` return."""
    exchange_atomic(shared + IS_SHUT_DOWN, 1)
    for _ in range(exchange_atomic(shared + SLEEPERS, 0)):
        _post(shared + SEMAPHORE)
