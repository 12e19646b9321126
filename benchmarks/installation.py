"""An installation for measurements: `manage.py serve` on loopback in a temporary folder, its processes and their use.

Used by relay.py, platform_targets.py and others. Linux only.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICK_US = 1_000_000 / os.sysconf("SC_CLK_TCK")
PARTS = (
    ("helpers", ("engine.killable",)),
    ("core", ("engine.core.process", "relay.py core ")),
    ("web", ("lightcone_site.web",)),
    ("worker", ("model@",)),
    ("maintenance", ("maintenance@",)),
    ("valkey", ("valkey-server",)),
    ("supervisor", ("manage.py serve", "relay.py serve")),
)
"""Parts by a text in their command lines; the first match counts."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A running installation. `folder` is its data directory."""

    port: int
    key: str
    folder: Path
    pid: int

    @property
    def database(self) -> Path:
        return self.folder / "lightcone.sqlite3"

    def processes(self) -> dict[str, list[int]]:
        """Return process ids by part."""
        found: dict[str, list[int]] = {}
        for pid in _with_descendants(self.pid):
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
            part = next((name for name, words in PARTS if any(word in command for word in words)), None)
            if part:
                found.setdefault(part, []).append(pid)
        return found

    def memory_bytes(self) -> dict[str, list[int]]:
        """Return the memory of each process of a part, shared pages in proportion (PSS)."""
        return {part: sorted(map(_pss_bytes, pids), reverse=True) for part, pids in self.processes().items()}


def processor_us(pids: Sequence[int]) -> float:
    """Return the processor time of processes (utime + stime), in steps of a tick."""
    stats = [_read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats if fields) * TICK_US


@contextlib.contextmanager
def serving(
    command: Sequence[str] = ("manage.py", "serve"), settings: Mapping[str, str] | None = None
) -> Iterator[Installation]:
    """Serve until the end of the block; it begins once the server is ready. `settings`: more of the environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key = f"lc_bench00001_{secrets.token_hex(24)}"
    with tempfile.TemporaryDirectory(prefix="lightcone-bench-", ignore_cleanup_errors=True) as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LIGHTCONE_")} | {
            "LIGHTCONE_DATA_DIR": folder,
            "LIGHTCONE_PORT": str(port),
            "LIGHTCONE_API_KEY": key,
            "LIGHTCONE_ADMIN_PASSWORD": secrets.token_hex(16),
            "LIGHTCONE_MAX_LIVE_PER_KEY": "4096",
            **(settings or {}),
        }
        server = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            _wait_until_ready(server, port)
            yield Installation(port, key, Path(folder), server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(120)


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while server.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/health/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.5)
    raise SystemExit("the server did not become ready")


def _with_descendants(pid: int) -> list[int]:
    children = [
        child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in map(int, _read(task).split())
    ]
    return [pid, *(found for child in children for found in _with_descendants(child))]


def _pss_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str | Path) -> str:
    """Return the text of a file of /proc; "" if the process is gone."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
