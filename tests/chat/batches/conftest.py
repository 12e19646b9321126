"""Batches over a real database, with a scripted view in place of the route that answers their lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.http import HttpRequest, HttpResponse

from chat.access.keys import Caller, key_create
from chat.api.view import json_response
from chat.batches import lines, work
from chat.batches.files import FileAbout, FileMissing, file_get
from chat.batches.runner import BatchRunner
from chat.batches.services import BatchOrder, batch_create
from chat.models import Batch, Org, Project
from tests.chat.batches.stored_files import file_chunks, file_create

ENDPOINT = "/v1/chat/completions"
USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 1},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


@dataclass
class ScriptedRoute:
    """A route that answers each line with `answers(body)`. If `hold` is set, lines wait for it."""

    answers: Callable[[dict[str, Any]], HttpResponse] = lambda body: json_response({"echo": body, "usage": USAGE})
    seen: list[dict[str, Any]] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    requests: list[HttpRequest] = field(default_factory=list)
    num_cancelled: int = 0
    num_running: int = 0
    most_at_once: int = 0
    hold: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        body = json.loads(request.read())
        self.seen.append(body)
        self.callers.append(request.lightcone_caller)
        self.requests.append(request)
        self.arrived.set()
        self.num_running += 1
        self.most_at_once = max(self.most_at_once, self.num_running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            return self.answers(body)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1


@dataclass
class BatchWorld:
    """A project with a key, the route, and runners made on demand."""

    project: Project
    key: Any
    route: ScriptedRoute
    runners: list[BatchRunner] = field(default_factory=list)

    async def create(self, *bodies: Any, content: bytes | None = None, **fields: Any) -> Batch:
        return await database_sync_to_async(self._create)(bodies, content, fields)

    def _create(self, bodies: tuple[Any, ...], content: bytes | None, fields: dict[str, Any]) -> Batch:
        if content is None:
            content = b"\n".join(
                json.dumps({"custom_id": f"r{number}", "method": "POST", "url": ENDPOINT, "body": body}).encode()
                for number, body in enumerate(bodies)
            )
        about = FileAbout(self.project.pk, self.key.public_id, "in.jsonl", "batch")
        file = file_create(about=about, content=content)
        order = BatchOrder(self.project.pk, self.key.public_id, ENDPOINT, file.public_id)
        batch = batch_create(order=order)
        if fields:
            Batch.objects.filter(pk=batch.pk).update(**fields)
            batch.refresh_from_db()
        return batch

    def runner(self) -> BatchRunner:
        runner = BatchRunner()
        self.runners.append(runner)
        return runner

    async def run(self) -> None:
        """Run turns until every open batch has been worked on once."""
        runner = self.runner()
        await runner.turn(wait_s=0.0)
        await runner.settle()

    @staticmethod
    async def now(batch: Batch) -> Batch:
        await database_sync_to_async(batch.refresh_from_db)()
        return batch

    async def files(self, batch: Batch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the lines of the output file and of the error file."""
        return await database_sync_to_async(self._files)(batch)

    def _files(self, batch: Batch) -> Any:
        batch.refresh_from_db()
        return tuple(self._lines(name) for name in (batch.output_file_id, batch.error_file_id))

    def _lines(self, public_id: str) -> list[dict[str, Any]]:
        try:
            file = file_get(project_id=self.project.pk, public_id=public_id)
        except FileMissing:
            assert public_id == ""
            return []
        assert file.purpose == "batch_output"
        return [json.loads(line) for line in b"".join(file_chunks(file)).splitlines()]


def project_with_key() -> tuple[Project, Any]:
    project = Project.objects.create(org=Org.objects.create(name="Acme"), name="Search")
    return project, key_create(project=project, name="one")[0]


@pytest.fixture
async def world(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BatchWorld]:
    async def refresh() -> None:
        """Nothing is cached here."""

    route = ScriptedRoute()
    monkeypatch.setattr(lines, "configuration_refresh", refresh)
    monkeypatch.setattr(work, "endpoint_view", lambda endpoint: route)
    monkeypatch.setattr(work, "WATCH_S", 0.01)
    monkeypatch.setattr(work, "KEY_LOOKS", 1)
    project, key = await database_sync_to_async(project_with_key)()
    world = BatchWorld(project, key, route)
    yield world
    for runner in world.runners:
        await runner.close()
