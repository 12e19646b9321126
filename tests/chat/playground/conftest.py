"""A signed-in page at the playground's socket, over a scripted service: no engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.test import Client

from chat.api.answering import pipeline
from chat.catalog import named_models
from chat.generation.completions import RunInfo
from chat.models import Project
from chat.playground import running
from tests.chat.api.conftest import HELLO, MODEL, Scripted, ScriptedReader
from tests.chat.conversations.conftest import ann, bob, page_of
from tests.people import member

__all__ = ["ann", "bob", "page_of"]

HOST = b"localhost:8000"
HELLO_BODY = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, valkey: str) -> Scripted:
    service = Scripted(script=list(HELLO))

    async def resolve(*, name: str | None, caller: Any = None) -> Any:
        return MODEL if name in (None, "", MODEL.name) else None

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(pipeline, "completion_start", service.start)
    monkeypatch.setattr(pipeline, "completion_refuse", service.refuse)
    monkeypatch.setattr(pipeline, "request_rejected_record", lambda **record: service.rejected.append(record))
    monkeypatch.setattr(running, "configuration_refresh", refresh)
    return service


def signed_in(name: str = "ada", *, may_chat: bool = True) -> Client:
    client = Client()
    client.force_login(member(name, may_chat=may_chat))
    return client


@database_sync_to_async
def cookie_of(client: Client | None) -> bytes:
    return b"" if client is None else f"lightcone_session={client.cookies['lightcone_session'].value}".encode()


async def socket(
    client: Client | None, *, origin: bytes = b"http://localhost:8000", host: bytes = HOST
) -> WebsocketCommunicator:
    from lightcone_site.asgi import application

    headers = [(b"host", host), (b"origin", origin), (b"cookie", await cookie_of(client)), (b"user-agent", b"test")]
    return WebsocketCommunicator(application, "/ws/playground", headers=headers)


async def admission(page: WebsocketCommunicator) -> dict[str, Any]:
    message = await page.receive_json_from()
    assert message["type"] == "admitted", message
    return message


@pytest.fixture
async def ada(project: Project) -> Client:
    return await database_sync_to_async(signed_in)()


@pytest.fixture
async def page(service: Scripted, ada: Client) -> AsyncIterator[WebsocketCommunicator]:
    page = await socket(ada)
    assert (await page.connect())[0]
    yield page
    await page.disconnect()


async def messages_until_end(page: WebsocketCommunicator) -> list[dict[str, Any]]:
    """Return the messages of a run after its admission."""
    received: list[dict[str, Any]] = []
    while not received or received[-1]["type"] in ("admitted", "delta", "resuming"):
        received.append(await page.receive_json_from())
    return [message for message in received if message["type"] != "admitted"]


@pytest.fixture
def kept(service: Scripted, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were started can be found and read again by their public id; the ids that were stopped."""
    stopped: list[str] = []

    async def find(*, public_id: str, caller: Any) -> tuple[str, bytes] | None:
        known = [policy for policy in service.detach_policies if policy is not None and policy.public_id == public_id]
        return (public_id, known[0].resume_context) if known else None

    async def attach(*, run_id: str, caller: Any) -> Any:
        return ScriptedReader(list(HELLO), {}), RunInfo("running", {"project_id": 1, "model": "m"}, 60.0)

    async def stop(*, run_id: str) -> None:
        stopped.append(run_id)

    monkeypatch.setattr(running, "run_find_public", find)
    monkeypatch.setattr(running, "run_attach", attach)
    monkeypatch.setattr(running, "run_stop", stop)
    return stopped
