"""Reports to the operator how far the model is and whether the web process answers. Decides nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from lightcone_site.serve.console import Console

POLL_S = 0.5
STEADY_POLL_S = 3.0
HEALTH_TIMEOUT_S = 2.0
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
LOADING, FAILED = "loading", "failed"
"""States of a model, as in chat.catalog.models, which needs Django; the supervisor runs without it."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The state of the model that the worker reported last, and the reason."""

    state: str
    reason: str


@dataclass
class Readiness:
    """What is known of the web process and the model; `turn` is called once a turn of the main loop."""

    console: Console
    ask: Callable[[], int]
    """Returns the status of /health/ready, 0 without an answer."""
    status: Callable[[], ModelStatus | None]
    clock: Callable[[], float]
    model: str
    url: str
    is_ready: bool = False
    """Whether web and model were ready at the last answer."""
    _next_at: float = 0.0
    _is_web_announced: bool = False
    _last_reason: str = ""

    def __post_init__(self) -> None:
        self._started_at = self.clock()

    @property
    def is_settled(self) -> bool:
        """Whether the model is ready, or has failed to load."""
        return self.is_ready or bool(self._last_reason)

    def turn(self) -> None:
        """Ask if it is time, and report changes. The supervisor reports a web process that is down."""
        now = self.clock()
        if now < self._next_at:
            return
        status = self.ask()
        if status and not self._is_web_announced:
            self._is_web_announced = True
            self.console.ok("web", f"{self.url}, answers after {now - self._started_at:.1f} s")
        if status == 200 and (self.is_ready or not self._has_failed()):
            self._report_ready(now)
        elif status:
            self._report_not_ready(now, self.status())
        self._next_at = now + (STEADY_POLL_S if status == 200 else POLL_S)

    def _has_failed(self) -> bool:
        """Return True if the first model has failed to load, although others may be loaded on demand."""
        known = self.status()
        return known is not None and known.state == FAILED

    def _report_ready(self, now: float) -> None:
        if not self.is_ready:
            self.console.ok("model", f"{self.model}, ready after {now - self._started_at:.1f} s")
        self.is_ready, self._last_reason = True, ""

    def _report_not_ready(self, now: float, status: ModelStatus | None) -> None:
        if self.is_ready:
            self.is_ready, self._started_at = False, now
            self.console.problem("model", f"{self.model}: not ready; requests are answered 503 until it is back")
        elif status is not None and status.state == FAILED:
            if status.reason != self._last_reason:
                self._last_reason = status.reason
                self.console.problem("model", f"{self.model}: {status.reason}")
        else:
            phase, fraction = loading_phase(status)
            self.console.progress("model", f"{self.model}: {phase}", fraction)


def loading_phase(status: ModelStatus | None) -> tuple[str, float | None]:
    """Return the phase and its progress: ("loading weights", 0.4) for the reason `loading weights 40%`."""
    if status is None or status.state != LOADING or not status.reason:
        return "loading", None
    match = re.fullmatch(r"(.+) (\d{1,3})%", status.reason)
    return (match[1], int(match[2]) / 100) if match else (status.reason, None)


def ready_status(host: str, port: int) -> int:
    """Return the status of GET /health/ready, 0 without an answer. Does without http.client, which loads TLS."""
    try:
        with socket.create_connection((host, port), HEALTH_TIMEOUT_S) as connection:
            connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while len(answer) < 16 and (data := connection.recv(4096)):
                answer += data
    except OSError:
        return 0
    match = STATUS.match(answer)
    return int(match[1]) if match else 0
