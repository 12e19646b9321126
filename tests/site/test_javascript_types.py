"""The check of the types of JavaScript, on machines that cannot make it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("required", "code"), [("", 0), ("1", 1)])
def test_a_machine_without_node_skips_it_and_says_why_unless_it_is_required(
    tmp_path: Path, required: str, code: int
) -> None:
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    environment = {**os.environ, "PATH": str(tmp_path), "LIGHTCONE_TEST_REQUIRE": required}
    command = [str(tmp_path / "bash"), str(ROOT / ".ci/javascript")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, "")
    reason = "needs Node.js and npm (apt-get install nodejs npm)"
    assert done.stderr == f"Skipped the types of JavaScript: {reason}\n"
