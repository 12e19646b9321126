"""One supervised process: its group, its log, its restarts."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chat.usage.masking import mask_secrets

LAUNCHER = Path(__file__).with_name("launch.py")
SECRETS_OF_THE_START = ("LIGHTCONE_API_KEY", "LIGHTCONE_ADMIN_PASSWORD")
"""Used once by the supervisor; no child needs them in its environment."""

MAX_LOG_BYTES = 16 * 2**20
MAX_BACKOFF_S = 30.0
STEADY_S = 60.0
"""A child that lived this long starts its back-off anew when it dies."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How a component is run. `stop_s`: how long it may take to stop; `orphan_signal`: what it gets when the supervisor was killed."""

    name: str
    command: tuple[str, ...]
    directory: Path
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_s: float = 10.0
    orphan_signal: int = signal.SIGKILL


@dataclass(frozen=True, slots=True)
class ChildState:
    """Where a child stands: its process, if it runs, and when it started or is to be started again (monotonic seconds)."""

    pid: int | None
    started_at: float
    restart_at: float | None
    num_failures: int
    log_start: int


class Process(Protocol):
    """A child process, started here or by the program that this process was before."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def send_signal(self, sig: int) -> None: ...


class AdoptedProcess:
    """A child of this process that it started as another program, with the manners of Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


class Child:
    """Runs `spec` in its own session, so that a Ctrl-C of the terminal reaches the supervisor alone and the whole group can be ended.

    Times are monotonic seconds, given by the caller.
    """

    def __init__(self, spec: ChildSpec, state: ChildState | None = None) -> None:
        """`state`: of a child that this process started as another program."""
        state = state or ChildState(None, 0.0, None, 0, 0)
        self.spec = spec
        self.restart_at = state.restart_at
        self._process: Process | None = AdoptedProcess(state.pid) if state.pid else None
        self._started_at = state.started_at
        self._num_failures = state.num_failures
        self._log_start = state.log_start

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def state(self) -> ChildState:
        return ChildState(self.pid, self._started_at, self.restart_at, self._num_failures, self._log_start)

    def start(self, now: float) -> None:
        """Start the process; its output is appended to the log. Raises OSError."""
        self.restart_at = None
        self._started_at = now
        self.spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        trim_log(self.spec.log_path)
        interpreter = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(self.spec.orphan_signal)))
        with self.spec.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*interpreter, *self.spec.command],
                cwd=self.spec.directory,
                env=dict(self.spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def reap(self, now: float) -> int | None:
        """The exit code if the process has ended since the last call; sets `restart_at` and ends what is left of its group."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self._signal_group(signal.SIGKILL)
        self._process = None
        self.put_off(now)
        return code

    def put_off(self, now: float) -> None:
        """Set `restart_at` after a death, or a start that the system refused: later each time."""
        self._num_failures = 1 if now - self._started_at >= STEADY_S else self._num_failures + 1
        self.restart_at = now + min(2.0 ** (self._num_failures - 1), MAX_BACKOFF_S)

    def terminate(self) -> None:
        """Ask the process, not its group, to stop: it ends its own children in its own order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole group at once and wait for it."""
        if self._process is not None:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def last_words(self, num_lines: int = 3) -> list[str]:
        """The end of what this process wrote since its start, for the operator."""
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


def trim_log(path: Path) -> None:
    """Keep one older log and start again when a log has grown large. The writer appends, so it may keep its file open.

    Without room for a copy it grows on: that is no reason not to start.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_LOG_BYTES:
            shutil.copyfile(path, path.with_name(path.name + ".1"))
            os.truncate(path, 0)


def exit_words(code: int) -> str:
    """An exit code in words: `exit code 1`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
