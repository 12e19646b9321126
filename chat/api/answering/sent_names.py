"""Failures name the field that was sent: the engine, the log of a run, and the steps behind a dialect's checks know our own names alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from chat.errors import ApiError
from engine.api import EngineError, ErrorCode, Event, Failed, RequestError


class Events(Protocol):
    """What is read of a run."""

    async def next(self, timeout_s: float) -> Event | None: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...


Reword = Callable[[EngineError, dict[str, Any]], EngineError]
"""What a dialect knows of the names that were sent (`Dialect.reword`)."""


@contextmanager
def refusals_reworded(reword: Reword, values: dict[str, Any]) -> Iterator[None]:
    """Refusals of what happens within, of the request that `values` are of."""
    try:
        yield
    except ApiError as error:
        renamed = reword(RequestError(ErrorCode.INVALID_VALUE, error.message, error.param), values)
        error.message, error.param = renamed.message, renamed.param
        raise


class SentNamesReader:
    """Reads `events` of the request that `values` are of."""

    def __init__(self, events: Events, reword: Reword, values: dict[str, Any]) -> None:
        self._events, self._reword, self._values = events, reword, values

    async def next(self, timeout_s: float) -> Event | None:
        event = await self._events.next(timeout_s)
        return None if event is None else self._renamed(event)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        async for event in self._events:
            yield self._renamed(event)

    def _renamed(self, event: Event) -> Event:
        payload = event.payload
        if not isinstance(payload, Failed) or payload.param is None:
            return event
        renamed = self._reword(EngineError(payload.code, payload.message, payload.param), self._values)
        return replace(event, payload=replace(payload, message=renamed.message, param=renamed.param))
