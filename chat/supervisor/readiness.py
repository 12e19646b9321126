"""Tells the operator how far the model is and whether the web answers, from what both report; decides nothing."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error as DatabaseError

from chat.models import ServedModel
from chat.models.catalogue import ModelState
from chat.supervisor.console import Console

POLL_S = 0.5
STEADY_POLL_S = 3.0


@dataclass(frozen=True, slots=True)
class ModelNews:
    """What the worker last said of its model."""

    state: str
    reason: str


class Readiness:
    """Called once a turn of the main loop; `on_settled` runs once: at the first readiness, or when the model turns out unusable."""

    def __init__(
        self, console: Console, *, is_ready: Callable[[], bool], news: Callable[[], ModelNews | None], clock: Callable[[], float], name: str
    ) -> None:
        self._console = console
        self._is_ready = is_ready
        self._news = news
        self._clock = clock
        self._name = name
        self._started_at = clock()
        self._next_at = 0.0
        self._was_ready = False
        self._last_reason = ""
        self.is_settled = False

    def turn(self) -> None:
        """Ask, where it is time, and say what has changed."""
        now = self._clock()
        if now < self._next_at:
            return
        ready = self._is_ready()
        news = self._news() if not ready else None
        if ready and not self._was_ready:
            self._console.ok("model", f"{self._name}, ready after {now - self._started_at:.1f} s")
            self._last_reason = ""
        elif news is not None and news.state == ModelState.FAILED:
            if news.reason != self._last_reason:
                self._last_reason = news.reason
                self._console.problem("model", f"{self._name}: {news.reason}")
        elif self._was_ready and not ready:
            self._console.problem("model", f"{self._name}: not ready; requests are answered 503 until it is back")
            self._started_at = now
        elif not ready:
            words = news.reason if news and news.state == ModelState.LOADING and news.reason else "loading"
            self._console.progress("model", f"{self._name}: {words}")
        self._was_ready = ready
        self.is_settled = self.is_settled or ready or bool(self._last_reason)
        self._next_at = now + (STEADY_POLL_S if ready else POLL_S)


def is_web_ready(host: str, port: int) -> bool:
    """Whether /health/ready answers 200."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/health/ready", headers={"Host": "localhost"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def model_news(slug: str) -> ModelNews | None:
    """The model's row; None while the database is busy or away."""
    try:
        row = ServedModel.objects.filter(slug=slug).values_list("state", "state_reason").first()
    except DatabaseError:
        return None
    return ModelNews(*row) if row else None
