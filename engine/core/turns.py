"""Turns of cores that compute on the same processors: each busy core has an equal share of them.

A turn of the step loop is a step, or a part of a long one. As it begins, the core marks itself as busy, counts the busy
cores and takes its share of threads for this turn. Nobody waits: a core that becomes busy computes at once, and the
others leave it its share from their next turns on (docs/decisions/0025-turns-of-cores.md).

A mark is a lock on one byte of a file that all cores name; its bytes are never written. The system takes the locks of a
process back when it ends, however it ends. Open file description locks (fcntl(2)) belong to the opened file, so two
cores in one process are two as well.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from engine.api.errors import ModelLoadError

ROTATION_S = 0.1
"""The processors that are left over when all have equal shares change hands so often."""
_FLOCK = "hhqqi"
"""C's struct flock: type, whence, first byte, number of bytes (0: to the end), process."""


class Turns:
    """The turns of one core. Used by the thread of the step loop alone."""

    def __init__(
        self,
        path: Path,
        num_threads: int,
        limit_threads: Callable[[int], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`num_threads`: those of the core when no other is busy, the same for all cores that name the file.

        `limit_threads` is called with the core's share whenever it changes. `clock` must be the same in all cores, as
        `monotonic` is in all processes of a machine. Raises ModelLoadError.
        """
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise ModelLoadError("turns_file needs locks that this system does not have (Linux has): unset it")
        self._place: int | None = None
        """The byte that is locked while the core is busy."""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._place = self._lock_first_free()
        except OSError as error:
            raise ModelLoadError(
                f"turns_file {path} cannot be opened and locked: {error.strerror}; name a file in a local folder "
                "that all cores may write to"
            ) from error
        self.leave()
        self._num_threads = num_threads
        self._limit_threads = limit_threads
        self._clock = clock
        self._share = num_threads

    def begin(self) -> None:
        """Begin a turn: mark the core as busy and take its share of threads."""
        if self._place is None:
            self._place = self._lock_first_free()
        others = self._locked(0, 0)
        rank = sum(place < self._place for place in others)
        share = share_of(self._num_threads, len(others) + 1, rank, int(self._clock() / ROTATION_S))
        if share != self._share:
            self._share = share
            self._limit_threads(share)

    def leave(self) -> None:
        """Mark the core as idle."""
        if self._place is not None:
            self._call(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, self._place, 1)
            self._place = None

    def close(self) -> None:
        """Close the file, which marks the core as idle. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._place = -1, None

    def _lock_first_free(self) -> int:
        place = 0
        while True:
            try:
                self._call(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, place, 1)
                return place
            except BlockingIOError:
                place += 1

    def _locked(self, first: int, end: int) -> list[int]:
        """Return the bytes from `first` on that other cores have locked, to the last before `end` (0: of all).

        The system names one lock of those in a range, any of them.
        """
        kind, _, place, _, _ = self._call(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, first, end - first if end else 0)
        if kind == fcntl.F_UNLCK:
            return []
        before = self._locked(first, place) if place > first else []
        after = self._locked(place + 1, end) if place + 1 != end else []
        return [*before, place, *after]

    def _call(self, command: int, kind: int, first: int, count: int) -> tuple[int, ...]:
        return struct.unpack(
            _FLOCK, fcntl.fcntl(self._file, command, struct.pack(_FLOCK, kind, os.SEEK_SET, first, count, 0))
        )


def share_of(num_threads: int, num_busy: int, rank: int, round_number: int) -> int:
    """Return the threads of one of `num_busy` cores, at least one. The `rank`s are 0, 1, … in any order.

    Those that are left over go to each in turn, from one round to the next.
    """
    whole, left_over = divmod(num_threads, num_busy)
    return max(1, whole + ((rank + round_number) % num_busy < left_over))
