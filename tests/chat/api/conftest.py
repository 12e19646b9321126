"""The API with a scripted completions service behind it: no engine, no Valkey, no database."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from chat.access.keys import Caller, KeyForbidden, KeyInvalid
from chat.api.answering import pipeline
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.generation.completions import DetachPolicy
from chat.relay.state.workers import ModelCondition
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Event,
    FinishReason,
    GenerationRequest,
    Outcome,
    Payload,
    Timings,
    Usage,
)

KEY = "lc_testing0001_" + "0" * 48
RUN_ID = "0195f2d0c0de7000800000000000abcd"
ROUTE = "/v1/chat/completions"
MODEL = ModelEntry(
    name="org/tiny",
    owned_by="lightcone",
    created_at=1_700_000_000,
    fingerprint="fp_tiny",
    aliases=("tiny",),
    is_default=True,
    sampling_defaults={"top_k": 7},
)


class ScriptedReader:
    """A reader that yields scripted payloads as a run's events; it raises exceptions of the script, and None is a
    silence.
    """

    def __init__(self, script: list[Payload | Exception | None], headers: dict[str, str]) -> None:
        self.script = deque(script)
        self.headers = headers
        self.waits_for_model = False
        self.run_id = RUN_ID
        self.attempt = 1
        self.num_left = 0
        self.stopped: list[Outcome] = []
        self._when_left: list[Callable[[], None]] = []
        self.position = 0

    def _take(self) -> Payload | None:
        item = self.script.popleft()
        if isinstance(item, BaseException):
            raise item
        return item

    def _event(self, payload: Payload) -> Event:
        count = len(payload.token_ids) if isinstance(payload, Delta) else 1
        event = Event(self.position, count, payload)
        self.position += count
        return event

    async def has_begun(self, timeout_s: float) -> bool:
        return True

    async def first(self, *, timeout_s: float | None = None) -> Admitted:
        payload = self._take()
        assert isinstance(payload, Admitted)
        self.position = 1
        return payload

    async def next(self, timeout_s: float) -> Event | None:
        payload = self._take()
        return None if payload is None else self._event(payload)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncIterator[Event]:
        while self.script:
            payload = self._take()
            if payload is not None:
                yield self._event(payload)

    async def stop(self, outcome: Outcome = Outcome.STOPPED) -> None:
        self.stopped.append(outcome)

    def leave(self) -> None:
        self.num_left += 1
        while self._when_left:
            self._when_left.pop()()

    def when_left(self, act: Callable[[], None]) -> None:
        self._when_left.append(act)


@dataclass
class Scripted:
    """A scripted completion service that records its calls."""

    script: list[Any] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    refusal: Exception | None = None
    requests: list[GenerationRequest] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    readers: list[ScriptedReader] = field(default_factory=list)
    refused: list[list[Any]] = field(default_factory=list)
    further: list[bool] = field(default_factory=list)
    detach_policies: list[DetachPolicy | None] = field(default_factory=list)

    async def start(self, *, request, caller, trace, is_further=False, detach=None, **_) -> ScriptedReader:
        self.requests.append(request)
        self.traces.append(trace)
        self.further.append(is_further)
        self.detach_policies.append(detach)
        if self.refusal is not None:
            raise self.refusal
        reader = ScriptedReader(self.script, self.headers)
        self.readers.append(reader)
        return reader

    async def look(self, *, caller) -> dict[str, str]:
        return self.headers

    async def refuse(self, *, request, messages, caller, trace, **_) -> dict[str, str]:
        assert request.messages == ()
        self.refused.append(messages)
        if self.refusal is not None:
            raise self.refusal
        return self.headers


def delta(text: str, choice: int = 0, token_ids: tuple[int, ...] = (5,), logprobs=None) -> Delta:
    return Delta(choice, token_ids, text, logprobs)


def finished(
    choice: int = 0, reason: FinishReason = FinishReason.STOP, stop_reason: str | int | None = None, text: str = ""
) -> ChoiceFinished:
    return ChoiceFinished(choice, reason, stop_reason, text)


def completed(prompt: int = 3, cached: int = 1, output: int = 2, outcome: Outcome = Outcome.FINISHED) -> Completed:
    return Completed(outcome, Usage(prompt, cached, output), Timings(0.0))


ADMITTED = Admitted(num_prompt_tokens=3, max_tokens=100, seed=1)
HELLO = [ADMITTED, delta("Hel"), delta("lo"), finished(), completed()]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    service = Scripted(script=list(HELLO))
    caller = Caller(key_id=1, public_id="testing0001", org_id=1, project_id=1, tenant="1")

    async def authenticate(*, raw: str, address: str = "", origin: str = "") -> Caller:
        if raw == KEY:
            return caller
        if raw == "elsewhere":
            raise KeyForbidden("This API key may not be used from this network address.")
        raise KeyInvalid

    async def resolve(*, name, caller=None):
        return MODEL if name in (None, "", MODEL.name, *MODEL.aliases) else None

    async def models(*, caller=None):
        return [MODEL]

    async def no_weighted(*, caller=None):
        return []

    async def no_budgets(*, caller, model):
        return ()

    async def live():
        return {MODEL.name: ModelCondition("ready", max_model_len=4096)}

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr("chat.access.authentication.configuration_refresh", refresh)
    monkeypatch.setattr("chat.access.authentication.key_authenticate", authenticate)
    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(named_models, "models_for_caller_async", models)
    monkeypatch.setattr(named_models, "weighted_for_caller_async", no_weighted)
    monkeypatch.setattr(named_models, "adapters_for_caller_async", no_weighted)
    monkeypatch.setattr(named_models, "models_live", live)
    monkeypatch.setattr("chat.generation.metering.budgets_of", no_budgets)
    monkeypatch.setattr(pipeline, "completion_start", service.start)
    monkeypatch.setattr(pipeline, "completion_refuse", service.refuse)
    monkeypatch.setattr(pipeline, "limits_look", service.look)
    monkeypatch.setattr(pipeline, "request_rejected_record", lambda **record: service.rejected.append(record))
    return service


@pytest.fixture
async def api(scripted: Scripted) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a good key. Streams arrive whole here; their timing is the business of the server's own tests."""
    from lightcone_site.asgi import http

    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http), base_url="http://localhost", headers=headers
    ) as client:
        yield client


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], **fields}


async def post(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await api.post(ROUTE, json=chat(**fields))


def frames(text: str) -> list[Any]:
    """Return the values of the data frames; every line must be a frame, a ping or blank."""
    values = []
    for line in text.split("\n"):
        assert line == "" or line == ": ping" or line.startswith("data: "), line
        if line.startswith("data: "):
            data = line[6:]
            values.append(data if data == "[DONE]" else json.loads(data))
    return values
