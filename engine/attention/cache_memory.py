"""Memory for a KV cache on a CPU.

The system provides its pages at their first write, so that a cache costs only what it holds.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys

import torch


def untouched_zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Return zeros without writing every page, as torch.zeros does.

    Uses huge pages where the system has them, as a step reads all over the cache.
    """
    size = math.prod(shape) * dtype.itemsize
    if sys.platform == "win32" or not size:
        return torch.zeros(*shape, dtype=dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # this Linux kernel was built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
