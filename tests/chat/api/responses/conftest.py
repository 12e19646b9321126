"""The Responses API over the scripted service, with a store and rereadable runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from chat.api.answering import storage
from chat.api.responses import kept, views
from chat.generation.completions import RunInfo
from engine.api import Delta, Event, Payload
from tests.chat.api.conftest import ScriptedReader

ROUTE = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(autouse=True)
def _store(transactional_db: None) -> None:
    """Allow rows written by threads."""


async def respond(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await api.post(ROUTE, json={"input": "hi", **fields})


async def answer(api: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """Return the response object, which the published types take."""
    response = await respond(api, **fields)
    assert response.status_code == 200, response.text
    return checked(response.json())


def checked(body: dict[str, Any]) -> dict[str, Any]:
    Response.model_validate(body)
    assert set(body) >= {
        "id",
        "object",
        "created_at",
        "model",
        "output",
        "status",
        "usage",
        "error",
        "incomplete_details",
        "metadata",
    }
    return body


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, checked for known types, names and numbers."""
    read = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event)
        read.append(event)
    first = read[0]["sequence_number"]
    assert [event["sequence_number"] for event in read] == list(range(first, first + len(read)))
    return read


def names(read: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in read]


@dataclass
class Runs:
    """A stand-in for the runs in Valkey: their state and events."""

    state: str | None = "running"
    said: list[Payload] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    on_stop: list[Payload] = field(default_factory=list)

    async def find(self, *, run_id: str) -> RunInfo | None:
        return None if self.state is None else RunInfo(self.state, {"project_id": 1}, 60.0)

    async def log(self, *, run_id: str) -> list[Event]:
        position, logged = 0, []
        for payload in self.said:
            count = len(payload.token_ids) if isinstance(payload, Delta) else 1
            logged.append(Event(position, count, payload))
            position += count
        return logged

    async def attach(self, *, run_id: str, caller: Any) -> Any:
        if self.state is None:
            return None
        return ScriptedReader([*self.said, *self.on_stop], {}), await self.find(run_id=run_id)

    async def stop(self, *, run_id: str) -> None:
        self.stopped.append(run_id)
        self.said += self.on_stop
        self.state = "ended" if self.on_stop else self.state


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    known = Runs()
    for module in (kept, views):
        monkeypatch.setattr(module, "run_find", known.find)
    monkeypatch.setattr(kept, "run_log", known.log)
    monkeypatch.setattr(views, "run_attach", known.attach)
    monkeypatch.setattr(storage, "run_attach", known.attach)
    monkeypatch.setattr(views, "run_stop", known.stop)
    return known
