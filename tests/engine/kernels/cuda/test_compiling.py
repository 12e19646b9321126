"""Every kernel compiles without a warning for the supported devices, which the interpreter cannot check."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FAST_MEMORY = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}
"""Bytes that a program may take, by compute capability: A100, Ada, Hopper."""


@pytest.mark.slow
@pytest.mark.parametrize("capability", FAST_MEMORY)
def test_every_kernel_compiles_for_the_device_and_fits_its_memory(capability, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {
        "TRITON_CACHE_DIR": str(tmp_path)
    }
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tests.engine.kernels.cuda.compiling", str(capability)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    taken = [int(line.split()[2]) for line in done.stdout.splitlines()]
    assert len(taken) == (16 if capability >= 89 else 13)
    assert max(taken) <= FAST_MEMORY[capability], done.stdout
