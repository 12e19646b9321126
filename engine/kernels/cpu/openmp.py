"""The OpenMP library that torch has loaded, and the folder of compiled kernels.

Imported before any kernel is defined: kernels refer to the library's symbols, so that their code can be cached on disk.
Without GNU's OpenMP (macOS) a stub provides the symbols.
"""

from __future__ import annotations

import ctypes
import hashlib
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import torch  # noqa: F401 (loads the library)
from numba import cfunc, types


@cfunc(types.int32())
def _zero() -> int:
    return 0


def _code_folder() -> Path:
    """Return the cache folder of these sources: numba checks only the outermost function's file for changes."""
    folder = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    base = Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else folder / "__pycache__"
    return base / f"kernels-{hashlib.sha256(sources).hexdigest()[:16]}"


def _openmp_library() -> Path | None:
    """Return the path of GNU's OpenMP library if this process has it loaded (Linux), as torch's CPU builds do."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    return next(
        (Path(line.split(maxsplit=5)[5].strip()) for line in maps.read_text().splitlines() if "libgomp" in line), None
    )


def _load() -> Any:
    path = _openmp_library()
    if path is None:
        llvm.add_symbol("omp_get_thread_num", _zero.address)
        return None
    llvm.load_library_permanently(str(path))
    function = ctypes.CDLL(str(path)).GOMP_parallel
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    function.restype = None
    return function


numba.config.CACHE_DIR = str(_code_folder())

PARALLEL = _load()
"""GOMP_parallel (function, its argument, threads, flags), which returns when all threads have; None: one thread."""
