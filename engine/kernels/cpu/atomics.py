"""Atomic operations on 64-bit integers, and ways to wait, for compiled code. Addresses are integers."""

from __future__ import annotations

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ()), "aarch64": ("llvm.aarch64.hint", (1,))}.get(platform.machine())

yield_core = types.ExternalFunction("sched_yield", types.int32())


def _read_modify_write(operation):
    """Return a function of an address and a value that changes the integer there and returns the old one.

    All that this thread wrote before is visible to a thread that reads the new integer; later reads of this thread are
    not moved before it.
    """

    @intrinsic
    def change(typingctx, address, value):
        def generate(context, builder, signature, arguments):
            place = builder.inttoptr(arguments[0], _WORD.as_pointer())
            return builder.atomic_rmw(operation, place, arguments[1], "seq_cst")

        return types.int64(types.int64, types.int64), generate

    return change


add_atomic = _read_modify_write("add")
exchange_atomic = _read_modify_write("xchg")


@intrinsic
def replace_atomic(typingctx, address, expected, value):
    """Write an integer if the old value is `expected`; return the old value."""

    def generate(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        pair = builder.cmpxchg(place, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 0)

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def load_atomic(typingctx, address):
    """Return the integer at an address. All that was written before it is visible afterwards."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_atomic(typingctx, address, value):
    """Write an integer; earlier writes become visible first (release)."""

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def pause(typingctx):
    """Hint to the processor that this thread spins."""

    def generate(context, builder, signature, arguments):
        if _PAUSE is not None:
            name, constants = _PAUSE
            function_type = ir.FunctionType(ir.VoidType(), [ir.IntType(32)] * len(constants))
            function = cgutils.get_or_insert_function(builder.module, function_type, name)
            builder.call(function, [ir.Constant(ir.IntType(32), constant) for constant in constants])
        return context.get_dummy_value()

    return types.none(), generate
