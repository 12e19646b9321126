"""The supervisor's side of preparation.py, `manage.py serve --prepare FD`, which takes 90 MiB and ends when not needed.

Requests and answers are lines of JSON on a socket: [name, arguments], then {"result": …} or {"refused": reason}.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightcone_site.serve.child import describe_exit, die_with_this_process
from lightcone_site.serve.readiness import ModelStatus

PREPARE = (sys.executable, str(Path(__file__).resolve().parents[2] / "manage.py"), "serve", "--prepare")
STATUS_WAIT_S = 0.2
"""How long the main loop waits for a model's status before it goes on without."""


class Refusal(Exception):
    """Raised if the installation cannot be served as it is configured; the message says what to change."""


class DjangoProcess:
    """Starts the process with the first request, and again after its end. `command` gets the socket's number."""

    def __init__(self, command: Sequence[str] = PREPARE) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._unread = b""
        self._is_status_asked = False
        self._status: ModelStatus | None = None

    def ask(self, name: str, **arguments: Any) -> Any:
        """Return the result of a request. Raises Refusal, or SystemExit if the process has reported its failure."""
        try:
            self._send(name, arguments)
            answer = self._receive(None)
        except ConnectionError:
            assert self._process is not None
            code = self._process.wait()
            if code > 0:
                sys.exit(code)  # it has written the reason to the console
            raise Refusal(f"the preparation ended: {describe_exit(code)}") from None
        assert answer is not None
        if "refused" in answer:
            raise Refusal(answer["refused"])
        return answer["result"]

    def model_status(self, model: str) -> ModelStatus | None:
        """Return the last known status of the model, None at first. Ask for a newer one without a long wait."""
        try:
            if not self._is_status_asked:
                self._send("status", {"model": model})
                self._is_status_asked = True
            answer = self._receive(STATUS_WAIT_S)
        except OSError:  # the process has ended, or the system cannot start one now
            self._end()
            return self._status
        if answer is not None:
            self._is_status_asked = False
            self._status = ModelStatus(*answer["result"]) if answer["result"] else None
        return self._status

    def close(self) -> None:
        """End the process and forget the status. Idempotent."""
        self._end()
        self._status = None

    def _send(self, name: str, arguments: dict[str, Any]) -> None:
        if self._socket is None:
            self._socket = self._start()
        self._socket.sendall(json.dumps([name, arguments]).encode() + b"\n")

    def _receive(self, timeout_s: float | None) -> dict[str, Any] | None:
        """Return the next answer, None if it has not come in time. Raises ConnectionError if the process has ended."""
        assert self._socket is not None
        while b"\n" not in self._unread:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                die_with_this_process((*self._command, str(theirs.fileno()))),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the supervisor's
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process, self._socket, self._unread, self._is_status_asked = None, None, b"", False
