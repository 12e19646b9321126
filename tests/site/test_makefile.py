"""What a first installation shows: what comes, how large it is, and no other line of pip's. Python is scripted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = """#!/bin/sh
echo "$@" >> {calls}
echo "Collecting torch==2.13.0"
echo "  Downloading torch-2.13.0.whl.metadata (30 kB)"
echo "Downloading torch-2.13.0-cp311.whl (526.6 MB)"
echo "Requirement already satisfied: numpy in x"
echo "Installing collected packages: torch"
echo "a warning" >&2
exit {code}
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def install(folder: Path, code: int = 0) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the installing part of the Makefile into `folder`; what it said, and what pip was asked."""
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.format(calls=folder / "calls", code=code))
    python.chmod(0o755)
    stamp = folder / "venv" / ".requirements"
    command = ["make", "-s", f"VENV={folder / 'venv'}", f"PYTHON={sys.executable}", str(stamp)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert stamp.exists() == (code == 0)
    return done, (folder / "calls").read_text().splitlines()


def test_a_first_installation_shows_what_it_installs_and_its_size(tmp_path: Path) -> None:
    """Nothing was printed for minutes while torch came."""
    done, calls = install(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    steps = ["Installing", "Downloading", "Installing"]
    assert [line.split()[0] for line in lines] == [*steps, *steps, "Fetching", *steps[1:]]
    assert lines[0].startswith("Installing torch==")
    assert all(any(size in line for size in ("MB", "GB")) for line in (lines[0], lines[3], lines[6]))
    assert lines[1] == "Downloading torch-2.13.0-cp311.whl (526.6 MB)"
    assert len(calls) == 3
    assert "a warning" in done.stderr


def test_an_installation_that_fails_stops_there(tmp_path: Path) -> None:
    done, calls = install(tmp_path, code=1)
    assert done.returncode != 0
    assert len(calls) == 1


@pytest.mark.parametrize("is_half_installed", [False, True])
@pytest.mark.parametrize("target", ["key", "password"])
def test_what_prints_a_secret_installs_nothing_and_says_what_comes_first(
    tmp_path: Path, target: str, is_half_installed: bool
) -> None:
    """An installation that was interrupted has a Python, and not yet what the commands need."""
    if is_half_installed:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
    done = subprocess.run(
        ["make", "-s", f"VENV={tmp_path}", target], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "Run make serve first" in done.stderr
