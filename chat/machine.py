"""What this machine has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

NVIDIA_SMI_S = 20
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of control groups of version 2 and 1."""


def memory_of(device: str) -> int:
    """Return the bytes of memory of this machine and its container, or of the first GPU that nvidia-smi names.

    Raises LookupError if nvidia-smi does not say.
    """
    if device == "cuda":
        command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
            return int(answer.stdout.split()[0]) << 20
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            raise LookupError("nvidia-smi does not say how much memory the GPU has") from None
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits()])


def _container_limits() -> list[int]:
    limits = []
    for file in CGROUP_LIMITS:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits
