"""How soon a model's worker is ready again: its kernels are compiled and its file is in the page cache.

    python benchmarks/second_start.py --model FILE [--starts 5]

Kills the worker of a served installation, and times the next one from the beginning of its process until its lease
says `ready`; also the processor time of worker and core until then. Linux only.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from installation import Installation, processor_us, serving

POLL_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a GGUF file or a folder")
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    settings = {"LIGHTCONE_MODEL": options.model, "LIGHTCONE_MODEL_NAME": "model"}
    with serving(settings=settings) as installation:
        for _ in range(options.starts):
            seconds, processor_s = _start_again(installation)
            print(f"ready after {seconds:.2f} s, {processor_s:.2f} s of processor time, load {os.getloadavg()[0]:.1f}")


def _start_again(installation: Installation) -> tuple[float, float]:
    (old,) = installation.processes()["worker"]
    num_ready = _num_ready(installation)
    os.kill(old, signal.SIGKILL)
    while _num_ready(installation) == num_ready:
        time.sleep(POLL_S)
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    processes = installation.processes()
    return ended - _began_at(*processes["worker"]), processor_us([*processes["worker"], *processes["core"]]) / 1e6


def _num_ready(installation: Installation) -> int:
    """Return how often the log says that a worker has become ready."""
    logs = (installation.folder / "logs").glob("*.log")
    return sum(log.read_text().count(" is ready after ") for log in logs)


def _began_at(pid: int) -> float:
    """Return when a process began, in seconds since the machine's start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
