"""What this machine has."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
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


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What a device is and how busy it is. -1 and 0: the system does not say."""

    name: str = ""
    total_bytes: int = 0
    used_bytes: int = 0
    utilization: int = -1
    """Percent."""
    temperature: int = -1
    """Degrees Celsius."""
    power_watts: int = -1


def device_state(device: str) -> DeviceState:
    """Return the state of the first GPU, or of this machine's processor and memory."""
    return _gpu_state() if device == "cuda" else _cpu_state()


def _gpu_state() -> DeviceState:
    fields = "name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return DeviceState()
    name, *figures = [text.strip() for text in answer.stdout.partition("\n")[0].split(",")]
    numbers = [_whole(text) for text in figures] + [-1] * len(fields)
    total, used, utilization, temperature, power = numbers[:5]
    return DeviceState(name, max(0, total) << 20, max(0, used) << 20, utilization, temperature, power)


def _whole(text: str) -> int:
    """Return a figure of nvidia-smi; -1 for `[N/A]`."""
    try:
        return round(float(text))
    except ValueError:
        return -1


def _cpu_state() -> DeviceState:
    try:
        total = memory_of("cpu")
    except (OSError, ValueError):
        total = 0
    used = total - _meminfo("MemAvailable") if total and _meminfo("MemAvailable") else 0
    return DeviceState(_processor_name(), total, max(0, used))


def _meminfo(field: str) -> int:
    """Return a line of /proc/meminfo in bytes; 0 where there is none."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


@cache
def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
