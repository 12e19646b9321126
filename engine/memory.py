"""Return memory to the operating system after loading and after large work. Linux only; elsewhere nothing happens."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

MADV_DONTNEED = 4
MADV_PAGEOUT = 21
"""Of Linux 5.4 and later, in its own numbers."""


def trim_heap() -> None:
    """Return freed heap memory, which glibc would keep for later allocations."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


class HeapTrimmer:
    """A timer that trims the heap `delay_s` after large work, once for all work in that time. Thread-safe."""

    def __init__(self, delay_s: float, trim: Callable[[], None] = trim_heap) -> None:
        self._delay_s = delay_s
        self._trim = trim
        self._lock = threading.Lock()
        self._is_due = False

    def schedule(self) -> None:
        with self._lock:
            if self._is_due:
                return
            self._is_due = True
        timer = threading.Timer(self._delay_s, self._run)
        timer.daemon = True
        timer.start()

    def _run(self) -> None:
        with self._lock:
            self._is_due = False
        self._trim()


def page_out(name: str) -> None:
    """Page out clean, private mappings of files whose name starts with `name` (`MADV_PAGEOUT`).

    They are read again from the file on the next access. Written pages stay.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            advise = ctypes.CDLL(None).madvise
            for first, size in unwritten_ranges(Path("/proc/self/maps").read_text(), name):
                advise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_PAGEOUT)


def drop_mapped(files: Iterable[Path]) -> None:
    """Give back the pages of mapped files that this process has read (`MADV_DONTNEED`); reading maps them again.

    Nothing may have been written to a private mapping: that would be lost.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            advise = ctypes.CDLL(None).madvise
            names = {str(file.resolve()) for file in files}
            for first, size in mapped_ranges(Path("/proc/self/maps").read_text(), names):
                advise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_DONTNEED)


def mapped_ranges(maps: str, names: set[str]) -> Iterator[tuple[int, int]]:
    """Yield (address, size) of mappings of the files of these paths. `maps`: /proc/<pid>/maps."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] in names:
            first, end = (int(address, 16) for address in fields[0].split("-"))
            yield first, end - first


def unwritten_ranges(maps: str, name: str) -> Iterator[tuple[int, int]]:
    """Yield (address, size) of read-only mappings of files whose name starts with `name`. `maps`: /proc/<pid>/maps."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "w" not in fields[1] and Path(fields[5]).name.startswith(name):
            first, end = (int(address, 16) for address in fields[0].split("-"))
            yield first, end - first
