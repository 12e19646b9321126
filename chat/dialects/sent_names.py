"""A run's events, of which a failure names the field that was sent: the engine, and the log of the run, know its own names alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

from engine.api import EngineError, Event, Failed


class Events(Protocol):
    """What is read of a run."""

    async def next(self, timeout_s: float) -> Event | None: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...


class Rewording(Protocol):
    """The part of a dialect that knows what was sent."""

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError: ...


class SentNamesReader:
    """Reads `events` of the request that `values` are of."""

    def __init__(self, events: Events, dialect: Rewording, values: dict[str, Any]) -> None:
        self._events, self._dialect, self._values = events, dialect, values

    async def next(self, timeout_s: float) -> Event | None:
        event = await self._events.next(timeout_s)
        return None if event is None else self._told(event)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Event]:
        async for event in self._events:
            yield self._told(event)

    def _told(self, event: Event) -> Event:
        payload = event.payload
        if not isinstance(payload, Failed) or payload.param is None:
            return event
        told = self._dialect.reword(EngineError(payload.code, payload.message, payload.param), self._values)
        return replace(event, payload=replace(payload, message=told.message, param=told.param))
