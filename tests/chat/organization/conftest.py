"""An organisation with an admin key, driven by OpenAI's client as it is published."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from openai import AsyncOpenAI

from chat.access.admin_keys import admin_key_create
from chat.access.authentication import AuthFailures
from chat.access.keys import key_create
from chat.models import AdminKey, Org, Project
from tests.people import member


@dataclass(frozen=True)
class World:
    """Rows of one organisation, and one project of another."""

    org: Org
    project: Project
    other: Project
    owner: User
    ann: User
    """A member of the project."""
    key: AdminKey
    text: str
    chat_text: str
    """A key of the project."""


def world_make() -> World:
    org = Org.objects.create(name="Acme", is_operator=True)
    project = Project.objects.create(org=org, name="Search")
    other = Project.objects.create(org=Org.objects.create(name="Other"), name="Theirs")
    owner = member("olga", "owner", org=org, email="olga@example.com")
    ann = member("ann", "member", org=org, email="ann@example.com")
    project.members.add(ann)
    key, text = admin_key_create(actor=owner, org=org, name="terraform")
    return World(org, project, other, owner, ann, key, text, key_create(project=project, name="app")[1])


@pytest.fixture
async def world(transactional_db: None, valkey: str, settings: Any) -> World:
    settings.LIGHTCONE_REDIS_URL, settings.LIGHTCONE_DEPLOYMENT = valkey, f"test-{secrets.token_hex(4)}"
    return await database_sync_to_async(world_make)()


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., httpx.AsyncClient]]:
    """Return what makes a client of the server's HTTP application, at another address than the server's."""
    from lightcone_site.asgi import http

    # Other tests' wrong keys are forgotten.
    monkeypatch.setattr("chat.api.view._failures", AuthFailures(limit=1_000, window_s=60))

    clients = []

    def make(text: str = "", address: str = "192.0.2.7") -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(http, client=(address, 4000)),
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {text}"} if text else {},
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()


@pytest.fixture
async def api(world: World, opened: Callable[..., httpx.AsyncClient]) -> httpx.AsyncClient:
    return opened(world.text)


@pytest.fixture
async def openai(world: World, opened: Callable[..., httpx.AsyncClient]) -> Any:
    """Return the `admin.organization` of OpenAI's client, with the admin key."""
    client = AsyncOpenAI(admin_api_key=world.text, base_url="http://localhost/v1", http_client=opened(), max_retries=0)
    return client.admin.organization
