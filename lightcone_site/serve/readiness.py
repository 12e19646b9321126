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


class Readiness:
    """What is known of the web process and the model; `turn` is called once a turn of the main loop."""

    def __init__(
        self,
        console: Console,
        *,
        ask: Callable[[], int],
        status: Callable[[], ModelStatus | None],
        clock: Callable[[], float],
        model: str,
        url: str,
    ) -> None:
        """`ask` returns the status of /health/ready, 0 without an answer; `status` the state of the model."""
        self._console = console
        self._ask = ask
        self._status = status
        self._clock = clock
        self._model = model
        self._url = url
        self._started_at = clock()
        self._next_at = 0.0
        self._is_web_announced = False
        self._was_ready = False
        self._last_reason = ""

    @property
    def is_ready(self) -> bool:
        """Whether web and model were ready at the last answer."""
        return self._was_ready

    @property
    def is_settled(self) -> bool:
        """Whether the model was ready once, or has failed to load."""
        return self._was_ready or bool(self._last_reason)

    def turn(self) -> None:
        """Ask if it is time, and report changes. The supervisor reports a web process that is down."""
        now = self._clock()
        if now < self._next_at:
            return
        status = self._ask()
        if status and not self._is_web_announced:
            self._is_web_announced = True
            self._console.ok("web", f"{self._url}, answers after {now - self._started_at:.1f} s")
        if status == 200:
            self._report_ready(now)
        elif status:
            self._report_not_ready(now, self._status())
        self._next_at = now + (STEADY_POLL_S if status == 200 else POLL_S)

    def _report_ready(self, now: float) -> None:
        if not self._was_ready:
            self._console.ok("model", f"{self._model}, ready after {now - self._started_at:.1f} s")
        self._was_ready, self._last_reason = True, ""

    def _report_not_ready(self, now: float, status: ModelStatus | None) -> None:
        if self._was_ready:
            self._was_ready, self._started_at = False, now
            self._console.problem("model", f"{self._model}: not ready; requests are answered 503 until it is back")
        elif status is not None and status.state == FAILED:
            if status.reason != self._last_reason:
                self._last_reason = status.reason
                self._console.problem("model", f"{self._model}: {status.reason}")
        else:
            phase, fraction = loading_phase(status)
            self._console.progress("model", f"{self._model}: {phase}", fraction)


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
