"""The two things that only one supervisor can hold: the data directory, by a lock, and the port."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path


class AlreadyServed(Exception):
    """Raised if another live supervisor holds this data directory."""


class InstanceLock:
    """An flock on a file that names the holder's process id. The kernel drops it with its holder; the file stays."""

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
                f"{path.parent.parent} is already served by process {holder}. Stop it, or set LIGHTCONE_DATA_DIR and "
                "LIGHTCONE_PORT for a second installation."
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)


def port_problem(host: str, port: int) -> str:
    """Return the reason why a server cannot listen there, or ''."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return f"cannot be listened on: {error.strerror or error}"
    return ""
