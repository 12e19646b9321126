"""Memory that loading or other great work has left over, given back to the system. Does nothing where the system cannot."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

MADV_PAGEOUT = 21
"""Of Linux 5.4 and later, in its own numbers."""


def trim_heap() -> None:
    """Return what has been allocated and freed; glibc keeps it for a process that will not need as much again."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


class Leftovers:
    """Gives back what is freed after some work, `delay_s` after the first of it has come, and again after what comes then. Thread-safe."""

    def __init__(self, delay_s: float, give_back: Callable[[], None] = trim_heap) -> None:
        self._delay_s = delay_s
        self._give_back = give_back
        self._lock = threading.Lock()
        self._is_due = False

    def come(self) -> None:
        """There will be some."""
        with self._lock:
            if self._is_due:
                return
            self._is_due = True
        timer = threading.Timer(self._delay_s, self._go)
        timer.daemon = True
        timer.start()

    def _go(self) -> None:
        with self._lock:
            self._is_due = False
        self._give_back()


def page_out(name: str) -> None:
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
