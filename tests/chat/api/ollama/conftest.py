"""The routes of models over a real database and a store in a temporary folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async

from chat.access.keys import key_create
from chat.catalog import named_models
from chat.catalog.services import model_register, models_cache_clear
from chat.model_store.folder import ModelStore
from chat.model_store.local import model_import, models_at
from chat.models import Org, Project, ServedModel
from chat.relay.state.workers import ModelCondition
from tests.chat.model_store.conftest import DESCRIPTION, described, local_hub

__all__ = ["DESCRIPTION", "described", "local_hub"]

WEIGHTS = b"GGUF" + bytes(60)


@dataclass
class Installation:
    """A client with the right to manage models, what it manages, and the header of a key without the right."""

    api: httpx.AsyncClient
    store: ModelStore
    user: dict[str, str]
    conditions: dict[str, ModelCondition]

    async def post(self, route: str, **fields: Any) -> httpx.Response:
        return await self.api.post(f"/api/{route}", json=fields)

    async def delete(self, name: str) -> httpx.Response:
        return await self.api.request("DELETE", "/api/delete", json={"model": name})

    async def names(self) -> list[str]:
        return [model["name"] for model in (await self.api.get("/api/tags")).json()["models"]]


def rows() -> dict[str, ServedModel]:
    return {model.name: model for model in ServedModel.objects.all()}


async def rows_read() -> dict[str, ServedModel]:
    return await database_sync_to_async(rows)()


@pytest.fixture
async def installed(
    transactional_db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    """One stored model, `base`, with the alias `gpt`, which no worker has loaded."""
    from lightcone_site.asgi import http

    store = ModelStore(tmp_path / "models")
    settings.LIGHTCONE_MODEL_STORE = store.root

    def prepare() -> tuple[str, str]:
        file = tmp_path / "base.gguf"
        file.write_bytes(WEIGHTS)
        model_import(store, models_at(file)[0])
        model_register(name="base", path=str(store.model_path("base")), aliases=("gpt",))
        project = Project.objects.create(org=Org.objects.create(name="Acme"), name="Search")
        manager = key_create(project=project, name="manager", rights=["inference", "models_manage"])[1]
        return manager, key_create(project=project, name="user")[1]

    async def refresh() -> None:
        """Nothing is cached here."""

    conditions: dict[str, ModelCondition] = {}

    async def live() -> dict[str, ModelCondition]:
        return conditions

    monkeypatch.setattr("chat.access.authentication.configuration_refresh", refresh)
    monkeypatch.setattr(named_models, "models_live", live)
    manager, user = await database_sync_to_async(prepare)()
    models_cache_clear()
    headers = {"Authorization": f"Bearer {manager}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http), base_url="http://localhost", headers=headers
    ) as client:
        yield Installation(client, store, {"Authorization": f"Bearer {user}"}, conditions)
    models_cache_clear()
