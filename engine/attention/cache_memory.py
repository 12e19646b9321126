"""Memory for a cache on a CPU: zeros whose pages the system provides when they are first written, so that a cache costs what it holds."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys

import torch


def untouched_zeros(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """As torch.zeros, which writes every page. Huge pages where the system has them: a step reads all over the cache."""
    size = math.prod(shape) * dtype.itemsize
    if sys.platform == "win32" or not size:
        return torch.zeros(*shape, dtype=dtype)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
