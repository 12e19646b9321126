"""The routes of files and batches over a real database, with two keys of two projects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async

from chat.access.keys import key_create
from chat.batches import views
from chat.models import Org, Project


def two_keys() -> tuple[str, str]:
    org = Org.objects.create(name="Acme")
    first, second = (Project.objects.create(org=org, name=name) for name in ("Search", "Other"))
    return key_create(project=first, name="one")[1], key_create(project=second, name="two")[1]


@pytest.fixture
async def keys(transactional_db: None) -> tuple[str, str]:
    return await database_sync_to_async(two_keys)()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls of the runner."""
    calls: list[str] = []

    async def wake() -> None:
        calls.append("wake")

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(views, "batches_wake_async", wake)
    monkeypatch.setattr("chat.access.authentication.configuration_refresh", refresh)
    return calls


@pytest.fixture
async def api(keys: tuple[str, str], calls: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the first key."""
    from lightcone_site.asgi import http

    headers = {"Authorization": f"Bearer {keys[0]}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http), base_url="http://localhost", headers=headers
    ) as client:
        yield client


@pytest.fixture
def stranger(keys: tuple[str, str]) -> dict[str, str]:
    """Return the header of the second key."""
    return {"Authorization": f"Bearer {keys[1]}"}


async def upload(
    api: httpx.AsyncClient, content: bytes = b"{}\n", name: str = "in.jsonl", **fields: Any
) -> httpx.Response:
    data = {"purpose": "batch", **fields}
    return await api.post(
        "/v1/files",
        files={"file": (name, content)},
        data={key: value for key, value in data.items() if value is not None},
    )


async def file_id(api: httpx.AsyncClient, **options: Any) -> str:
    return (await upload(api, **options)).json()["id"]
