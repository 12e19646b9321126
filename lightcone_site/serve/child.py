"""One supervised process: its process group, its log and its restarts."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chat.masking import mask_secrets

LAUNCHER = Path(__file__).with_name("launch.py")
MAX_LOG_BYTES = 16 * 2**20
MAX_BACKOFF_S = 30.0
STEADY_S = 60.0
"""A child that ran this long begins its back-off anew when it dies."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    name: str
    command: tuple[str, ...]
    directory: Path
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_s: float = 10.0
    """How long it may take to stop."""
    orphan_signal: int = signal.SIGKILL
    """The signal that the kernel sends it when the supervisor is killed."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ChildSpec:
        paths = {name: Path(values[name]) for name in ("directory", "log_path")}
        return cls(**values | paths | {"command": tuple(values["command"])})


class Child:
    """The process of `spec`, in its own session, so that Ctrl-C does not reach it.

    Times are the caller's, monotonic.
    """

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.restart_at: float | None = None
        """When a child that has died is to be started again."""
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._num_failures = 0
        self._log_start = 0

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self, now: float) -> None:
        """Start the process and append its output to the log. Raises OSError."""
        self.restart_at = None
        self._started_at = now
        self.spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        trim_log(self.spec.log_path)
        with self.spec.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                die_with_this_process(self.spec.command, self.spec.orphan_signal),
                cwd=self.spec.directory,
                env=dict(self.spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def reap(self, now: float) -> int | None:
        """Return the exit code if the process has ended since the last call; end its group and set `restart_at`."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._signal_group(signal.SIGKILL)
        self._process = None
        self.schedule_restart(now)
        return code

    def schedule_restart(self, now: float) -> float:
        """Set `restart_at` after a death or a refused start. Return the pause, which is longer each time."""
        self._num_failures = 1 if now - self._started_at >= STEADY_S else self._num_failures + 1
        pause_s = min(2.0 ** (self._num_failures - 1), MAX_BACKOFF_S)
        self.restart_at = now + pause_s
        return pause_s

    def terminate(self) -> None:
        """Ask the process to stop. Its group gets no signal, as the process ends its own children in its own order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole group at once and wait for the process."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def last_log_lines(self, num_lines: int = 3) -> list[str]:
        """Return the last lines that the process wrote since its latest start, with secrets masked."""
        try:
            with self.spec.log_path.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 8192))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [mask_secrets(line)[:500] for line in lines if line.strip()][-num_lines:]

    def _signal_group(self, number: int) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def die_with_this_process(command: Sequence[str], death_signal: int = signal.SIGKILL) -> list[str]:
    """Return the command wrapped in `launch.py`: it gets `death_signal` when this process is gone (Linux)."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(death_signal)), *command]


def trim_log(path: Path) -> None:
    """Move a large log to one older copy, if there is room. The writer appends, so it may keep the file open."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(path, path.with_name(path.name + ".1"))
            os.truncate(path, 0)


def describe_exit(code: int) -> str:
    """Describe an exit code: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
