"""One supervisor per data directory. The kernel drops the lock with its holder, so a killed run never blocks the next one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class AlreadyServed(Exception):
    """Another live supervisor holds this data directory."""


class InstanceLock:
    """An flock on a file that names the holder's process id. The file itself stays; only the lock counts."""

    def __init__(self, path: Path) -> None:
        """Take the lock or raise AlreadyServed."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise AlreadyServed(
                f"{path.parent.parent} is already served by process {holder}. Stop it, or set LIGHTCONE_DATA_DIR and LIGHTCONE_PORT "
                "for a second installation."
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    @classmethod
    def held(cls, descriptor: int) -> InstanceLock:
        """The lock that this process took as another program."""
        lock = cls.__new__(cls)
        lock._file = descriptor
        return lock

    @property
    def descriptor(self) -> int:
        return self._file

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)
