"""Tells the operator how far the model is and whether the web answers, from what both report; decides nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from lightcone_site.serve.console import Console

POLL_S = 0.5
STEADY_POLL_S = 3.0
ASK_S = 2.0
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
LOADING, FAILED = "loading", "failed"
"""States of a model, as chat.models has them; that needs Django, and this file is part of a program without it."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What the worker last said of its model."""

    state: str
    reason: str


class Readiness:
    """Called once a turn of the main loop. `ask` gives the status of /health/ready (0: nobody answers), `status` the model's state."""

    def __init__(
        self,
        console: Console,
        *,
        ask: Callable[[], int],
        status: Callable[[], ModelStatus | None],
        clock: Callable[[], float],
        model: str,
        url: str,
        was_ready: bool = False,
    ) -> None:
        """`was_ready`: web and model were, and that has been told."""
        self._console = console
        self._ask = ask
        self._status = status
        self._clock = clock
        self._model = model
        self._url = url
        self._started_at = clock()
        self._next_at = 0.0
        self._is_web_announced = self._was_ready = was_ready
        self._last_reason = ""

    @property
    def is_ready(self) -> bool:
        """As far as is known."""
        return self._was_ready

    @property
    def is_settled(self) -> bool:
        """The model was ready once, or turned out to be unusable."""
        return self._was_ready or bool(self._last_reason)

    def turn(self) -> None:
        """Ask, where it is time, and say what has changed. A web that does not answer is the supervisor's to report."""
        now = self._clock()
        if now < self._next_at:
            return
        status = self._ask()
        if status and not self._is_web_announced:
            self._is_web_announced = True
            self._console.ok("web", f"{self._url}, answers after {now - self._started_at:.1f} s")
        if status == 200:
            self._tell_ready(now)
        elif status:
            self._tell_not_ready(now, self._status())
        self._next_at = now + (STEADY_POLL_S if status == 200 else POLL_S)

    def _tell_ready(self, now: float) -> None:
        if not self._was_ready:
            self._console.ok("model", f"{self._model}, ready after {now - self._started_at:.1f} s")
        self._was_ready, self._last_reason = True, ""

    def _tell_not_ready(self, now: float, status: ModelStatus | None) -> None:
        if self._was_ready:
            self._was_ready, self._started_at = False, now
            self._console.problem("model", f"{self._model}: not ready; requests are answered 503 until it is back")
        elif status is not None and status.state == FAILED:
            if status.reason != self._last_reason:
                self._last_reason = status.reason
                self._console.problem("model", f"{self._model}: {status.reason}")
        else:
            words, fraction = loading_words(status)
            self._console.progress("model", f"{self._model}: {words}", fraction)


def loading_words(status: ModelStatus | None) -> tuple[str, float | None]:
    """The phase and how far it is: `loading weights 40%` is told as ("loading weights", 0.4)."""
    if status is None or status.state != LOADING or not status.reason:
        return "loading", None
    match = re.fullmatch(r"(.+) (\d{1,3})%", status.reason)
    return (match[1], int(match[2]) / 100) if match else (status.reason, None)


def ready_status(host: str, port: int) -> int:
    """The status of GET /health/ready; 0 when nobody answers. Asked without http.client, which loads TLS."""
    try:
        with socket.create_connection((host, port), ASK_S) as connection:
            connection.sendall(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while len(answer) < 16 and (data := connection.recv(4096)):
                answer += data
    except OSError:
        return 0
    match = STATUS.match(answer)
    return int(match[1]) if match else 0
