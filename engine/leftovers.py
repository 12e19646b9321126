"""Memory that loading has left over and nobody will ask for again, given back to the system. Does nothing where the system cannot."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

MADV_PAGEOUT = 21
"""Of Linux 5.4 and later, in its own numbers."""


def give_back_freed() -> None:
    """Return what has been allocated and freed; glibc keeps it for a process that will not need as much again."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def give_back_file(name: str) -> None:
    """Let go of the pages of files whose names begin so and that only this process has mapped; what is needed again is read again.

    Pages that were written to stay.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            advise = ctypes.CDLL(None).madvise
            for first, size in unwritten_ranges(Path("/proc/self/maps").read_text(), name):
                advise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_PAGEOUT)


def unwritten_ranges(maps: str, name: str) -> Iterator[tuple[int, int]]:
    """(address, size) of the read-only mappings of files whose names begin so. maps: as /proc/<pid>/maps has them."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "w" not in fields[1] and Path(fields[5]).name.startswith(name):
            first, end = (int(address, 16) for address in fields[0].split("-"))
            yield first, end - first
