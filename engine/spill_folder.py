"""The folder of a spill file: its room, and whether it is in memory. Imports no torch: `manage.py doctor` asks too."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

KEPT_FREE = 0.05
"""Part of a disk that a spill file leaves free."""
MEMORY_TYPES = ("tmpfs", "ramfs")
MOUNTS = Path("/proc/self/mountinfo")
"""Of Linux; elsewhere no folder is known to be in memory."""


def room_bytes(folder: Path) -> int:
    """Return the largest spill file that a folder has room for. Raises OSError if the folder cannot be looked at."""
    disk = shutil.disk_usage(folder)
    return max(0, int(disk.free - KEPT_FREE * disk.total))


def is_in_memory(folder: Path) -> bool:
    """Return True if the files of a folder are in memory, so that a spill file would take what it should save."""
    try:
        device = folder.stat().st_dev
        mounts = MOUNTS.read_text().splitlines()
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts:
        fields = mount.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1] in MEMORY_TYPES
    return False
