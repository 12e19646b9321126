"""Asks what the worker says of its model in a process of its own, as asking takes Django. It lives while the answers are wanted.

The process is `model_status.py`; it writes a line of JSON again and again. The standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from lightcone_site.serve.readiness import ModelStatus

ASKER = "lightcone_site.serve.model_status"
ROOT = Path(__file__).resolve().parents[2]
READ_BYTES = 1 << 16


class StatusPoller:
    """Started by the first `latest`, and again by one after its end."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._latest: ModelStatus | None = None

    def latest(self) -> ModelStatus | None:
        """What was said last; None while nothing is known, also where the system starts no process now. Waits for nothing."""
        if self._process is None:
            try:
                self._process = self._start()
            except OSError:
                return None
        self._read(self._process)
        return self._latest

    def close(self) -> None:
        """End the process; what it said is forgotten. Idempotent."""
        if self._process is not None:
            self._end(self._process)
        self._latest = None

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", ASKER, self._model],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        self._process, self._unread = None, b""

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Take the last whole line that the process has written."""
        assert process.stdout is not None
        has_ended = False
        with contextlib.suppress(BlockingIOError):
            while data := os.read(process.stdout.fileno(), READ_BYTES):
                self._unread += data
            has_ended = True
        *lines, self._unread = self._unread.split(b"\n")
        if lines:
            status = json.loads(lines[-1])
            self._latest = ModelStatus(*status) if status else None
        if has_ended:
            self._end(process)
