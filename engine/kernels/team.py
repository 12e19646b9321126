"""Runs compiled kernels on the OpenMP threads that torch computes with.

A second pool of threads would spin against torch's on the same cores (each waits actively for its next work), so kernels go to the
very library that torch has loaded. Where that is not GNU's, a stand-in serves the symbols and kernels run on the calling thread.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import torch
from numba import cfunc, types


@cfunc(types.int32())
def _zero() -> int:
    return 0


@cfunc(types.int32())
def _one() -> int:
    return 1


@cfunc(types.void())
def _nothing() -> None:
    return None


@cache
def team() -> Team:
    """The one team of this process; made before any kernel is defined, as those name its symbols and keep their code in its place."""
    numba.config.CACHE_DIR = str(_code_folder())
    return Team()


class Team:
    """`run` calls a kernel once (serial) or once per thread."""

    def __init__(self) -> None:
        path = _openmp_library()
        self._parallel: Any = None
        if path is None:
            for name, function in (("omp_get_thread_num", _zero), ("omp_get_num_threads", _one), ("GOMP_barrier", _nothing)):
                llvm.add_symbol(name, function.address)
            return
        llvm.load_library_permanently(str(path))
        self._parallel = ctypes.CDLL(str(path)).GOMP_parallel
        self._parallel.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        self._parallel.restype = None

    def run(self, kernel: Kernel, program: Any, *, num_threads: int) -> None:
        """`program`: a ctypes array of 64-bit integers, read by the kernel alone. One thread is the calling one."""
        if num_threads > 1:
            self._parallel(kernel.address, program, num_threads, 0)
        else:
            kernel.call(program)

    @property
    def num_threads(self) -> int:
        """As many as torch uses now."""
        return torch.get_num_threads() if self._parallel else 1


class Kernel:
    """A compiled function as an address for the team and as a callable for one thread."""

    def __init__(self, function: Any) -> None:
        self.address = function.address
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function.address)


def _code_folder() -> Path:
    """Where compiled code is kept: a folder of this very version of the kernels, as numba looks only at the file of the outermost one."""
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    base = Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else folder / "__pycache__"
    return base / f"kernels-{hashlib.sha256(sources).hexdigest()[:16]}"


def _openmp_library() -> Path | None:
    """GNU's OpenMP library if this process has it loaded (Linux), as torch's CPU builds do."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    return next((Path(line.split(maxsplit=5)[5].strip()) for line in maps.read_text().splitlines() if "libgomp" in line), None)
