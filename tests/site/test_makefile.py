"""The output of a first installation: packages, their sizes, and no other line of pip. Python is scripted."""

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
    """Run the installing part of the Makefile into `folder`; return its output and the calls of pip."""
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


def test_a_first_installation_shows_packages_and_sizes(tmp_path: Path) -> None:
    """The download of torch printed nothing for minutes."""
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


def test_a_failed_installation_stops(tmp_path: Path) -> None:
    done, calls = install(tmp_path, code=1)
    assert done.returncode != 0
    assert len(calls) == 1


@pytest.mark.parametrize("is_half_installed", [False, True])
@pytest.mark.parametrize("target", ["key", "password"])
def test_targets_that_print_a_secret_require_an_installation(
    tmp_path: Path, target: str, is_half_installed: bool
) -> None:
    """An interrupted installation has a Python, but not the packages that the commands need."""
    if is_half_installed:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
    done = subprocess.run(
        ["make", "-s", f"VENV={tmp_path}", target], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "Run make serve first" in done.stderr
