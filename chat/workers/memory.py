"""The memory of loaded models: the budget of this machine, what a core takes, and which models make room."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chat.machine import memory_of

logger = logging.getLogger(__name__)

SHARE = 0.8
"""Of the machine's memory, or of the device's, for models where LIGHTCONE_MODEL_MEMORY is not set."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Resident:
    """A model that is loaded. `used_at`: when it was last used (seconds)."""

    name: str
    num_bytes: int
    used_at: float
    may_leave: bool
    """It is neither pinned nor at work."""


def memory_budget(wanted: int, device: str) -> int:
    """Return the bytes that models may take together: `wanted`, else a share of the device's or machine's memory."""
    if wanted:
        return wanted
    try:
        return int(memory_of(device) * SHARE)
    except LookupError as error:
        logger.warning("%s: models are not kept within it; set LIGHTCONE_MODEL_MEMORY", error)
        return UNLIMITED


def process_memory(pid: int) -> int:
    """Return the bytes of memory of a process: anonymous pages, and its part of those that it shares with others.

    Mapped files count once, however many processes map them (proportional set size, proc_pid_smaps(5)). 0 where the
    system does not say.
    """
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def room_made(num_bytes: int, budget: int, residents: Sequence[Resident]) -> list[str] | None:
    """Return the models to unload so that `num_bytes` more fit the budget, the least recently used first.

    None if those that may leave do not make room enough. None leaves that need not.
    """
    missing = num_bytes - (budget - sum(resident.num_bytes for resident in residents))
    chosen: list[Resident] = []
    for resident in sorted(residents, key=lambda resident: resident.used_at):
        if missing <= 0:
            break
        if resident.may_leave:
            chosen.append(resident)
            missing -= resident.num_bytes
    if missing > 0:
        return None
    for resident in reversed(chosen.copy()):
        if missing + resident.num_bytes <= 0:
            chosen.remove(resident)
            missing += resident.num_bytes
    return [resident.name for resident in chosen]


def gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
