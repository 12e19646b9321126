"""While the disk is full requests get a retryable answer and nothing crashes; then everything continues."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.inspection import request_log
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

DISK_BYTES = 96 * 2**20
SAY_HELLO = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
ROUTE = "/v1/chat/completions"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room; it grows by what has become free since."""
    stuff = disk / "stuff"
    with stuff.open("ab") as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    os.write(file.fileno(), bytes(size))
            except OSError:
                continue
    return stuff


def test_a_full_disk_causes_only_503s(disk: Path) -> None:
    served = ServedLightcone(disk)
    with served.running():
        assert served.post(ROUTE, SAY_HELLO)[0] == 200
        statuses, slowest_s = set(), 0.0
        for _ in range(30):
            stuff = fill(disk)  # a database that nobody has open any more leaves some room
            began = time.monotonic()
            status, headers, _ = served.post(ROUTE, SAY_HELLO)
            slowest_s = max(slowest_s, time.monotonic() - began)
            statuses.add(status)
            assert status == 200 or "retry-after" in headers, status
        assert 503 in statuses <= {200, 503}
        assert slowest_s < 15, "nothing hangs (2 s on a quiet machine)"
        stuff.unlink()
        served.wait_for(
            lambda: served.post(ROUTE, SAY_HELLO)[0] == 200, timeout_s=90, what="an answer after there is room"
        )
        assert "exit code" not in served.console()
        served.wait_for(
            lambda: {200, 503} <= {row["status"] for row in request_log(served)}, timeout_s=60, what="rows of both"
        )
        assert {row["status"] for row in request_log(served)} <= {200, 503}
    assert served.processes_left() == []
