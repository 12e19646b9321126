"""The memory that is free on a device at load, in bytes."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_memory(device: torch.device) -> int:
    """Return the memory that can still be allocated: of the CUDA device, or the least of the machine's and the
    container's.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(_machine_free(), _container_free())


def _machine_free() -> int:
    """Return MemAvailable, which includes reclaimable page cache; the physical memory if not on Linux."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _container_free(cgroups: tuple[tuple[str, str], ...] = _CGROUPS) -> int:
    """Return the limit of the control group (v2, v1) minus its use; very large if there is none."""
    for limit_file, used_file in cgroups:
        try:
            limit = Path(limit_file).read_text().strip()
            used = int(Path(used_file).read_text())
        except OSError:
            continue
        if limit.isdigit():
            return max(0, int(limit) - used)
    return 1 << 62
