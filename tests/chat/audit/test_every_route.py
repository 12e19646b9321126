"""Every route of the API that changes what is served leaves an entry with the key. What clients ask for does not."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.test import AsyncClient

from chat.access.keys import key_create
from chat.batches.files import FileAbout
from chat.batches.services import BatchOrder, batch_create
from chat.catalog.adapters import FILES, adapter_set
from chat.catalog.services import model_register
from chat.catalog.stored_models import stored_model_offer
from chat.catalog.weighted_aliases import weighted_alias_set
from chat.model_jobs.services import job_create
from chat.model_store.folder import ModelStore
from chat.model_store.local import model_import, models_at
from chat.models import ApiKey, AuditEntry, Org, Project
from chat.relay.state.workers import ModelCondition
from tests.chat.audit.secrets_of_tests import entries_after, last_entry
from tests.chat.batches.stored_files import file_create
from tests.chat.model_store.conftest import described as described  # noqa: PLC0414  # a fixture
from tests.chat.organization.test_audited import CASES as OF_ADMIN_KEYS
from tests.chat.organization.test_audited import CHANGES_NOTHING
from tests.chat.organization.test_audited import routes as organization_routes
from tests.people import member

OF_CLIENTS = {
    *("POST /v1/messages", "POST /v1/messages/count_tokens", "POST /v1/responses", "POST /v1/responses/input_tokens"),
    *("DELETE /v1/responses/{response_id}", "POST /v1/responses/{response_id}/cancel"),
    *("POST /v4/beta/chat/completions", "POST /v5/chat/completions", "POST /v4/beta/completions"),
    *("POST /api/chat", "POST /api/generate", "POST /api/embed", "POST /api/embeddings", "POST /api/show"),
    *("POST /v1/chat/completions", "POST /v1/chat/completions/{completion_id}"),
    *("DELETE /v1/chat/completions/{completion_id}", "POST /v1/completions", "POST /v1/chat/completions/render"),
    *("POST /v1/embeddings", "POST /v1/rerank", "POST /v2/rerank", "POST /tokenize", "POST /detokenize"),
    *("POST /v1/audio/transcriptions", "POST /v1/audio/translations", "POST /v1/files", "POST /v1/batches"),
}
"""What clients ask for, and their own answers, files and batches: the request log has these."""
OF_A_JOB = {"POST /api/pull"}
"""The hub is asked first. The model that is stored in the end has an entry, as every registered one."""
JSON_CASES: dict[str, tuple[str, str, Any]] = {
    "DELETE /v1/files/{file_id}": ("file.delete", "/v1/files/{file}", None),
    "POST /v1/batches/{batch_id}/cancel": ("batch.cancel", "/v1/batches/{batch}/cancel", None),
    "PATCH /v1/admin/models/{name}": ("model.change", "/v1/admin/models/plain", {"system_prompt": "Be brief."}),
    "DELETE /v1/admin/models/{name}": ("model.delete", "/v1/admin/models/spare", None),
    "POST /v1/admin/models/pull": ("job.create", "/v1/admin/models/pull", {"model": "org/name"}),
    "POST /v1/admin/models/import": ("job.create", "/v1/admin/models/import", {"path": "/models/new"}),
    "POST /v1/admin/models/check": ("job.create", "/v1/admin/models/check", {"model": "smol"}),
    "POST /v1/admin/models/copy": ("model.create", "/v1/admin/models/copy", {"model": "smol", "name": "twin"}),
    "POST /v1/admin/models/load": ("model.load", "/v1/admin/models/load", {"model": "plain"}),
    "POST /v1/admin/models/unload": ("model.unload", "/v1/admin/models/unload", {"model": "plain"}),
    "PUT /v1/admin/adapters/{name}": ("adapter.create", "/v1/admin/adapters/plain:new", None),
    "DELETE /v1/admin/adapters/{name}": ("adapter.delete", "/v1/admin/adapters/plain:old", None),
    "PUT /v1/admin/aliases/{name}": (
        *("alias.create", "/v1/admin/aliases/new"),
        {"targets": [{"model": "plain", "weight": 1}]},
    ),
    "DELETE /v1/admin/aliases/{name}": ("alias.delete", "/v1/admin/aliases/old", None),
    "DELETE /v1/admin/jobs/{job_id}": ("job.cancel", "/v1/admin/jobs/{job}", None),
    "POST /api/create": ("model.create", "/api/create", {"model": "derived", "from": "plain"}),
    "POST /api/copy": ("model.change", "/api/copy", {"source": "plain", "destination": "further"}),
    "DELETE /api/delete": ("model.delete", "/api/delete", {"model": "smol"}),
}
"""By route: the action of its entry, the path and the body."""


@pytest.fixture
async def api(
    transactional_db: None, valkey: str, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose key may do everything, and one row of each kind."""
    from lightcone_site.asgi import http

    settings.LIGHTCONE_REDIS_URL, settings.LIGHTCONE_DEPLOYMENT = valkey, f"test-{secrets.token_hex(4)}"
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "models"

    async def live() -> dict[str, ModelCondition]:
        return {"plain": ModelCondition("unloaded")}

    monkeypatch.setattr("chat.model_jobs.views.models_live", live)
    for act in ("model_load_ask", "model_unload_ask"):
        monkeypatch.setattr(f"chat.catalog.acts.{act}", lambda *, name: None)
    names, raw = await database_sync_to_async(rows_make)(tmp_path)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http, client=("192.0.2.7", 4000)),
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {raw}", "X-Request-Id": "asked-1"},
    ) as client:
        client.names = names  # type: ignore[attr-defined]
        yield client


def rows_make(folder: Path) -> tuple[dict[str, str], str]:
    """Make a row of each kind; return the ids that paths name, and the text of a key."""
    project = Project.objects.create(org=Org.objects.create(name="Acme"), name="Search")
    model = model_register(name="plain", path="/models/plain.gguf")
    model_register(name="spare", path="/models/spare.gguf")
    adapter_set(model=model, name="old", path="/a", is_elsewhere=True)
    weighted_alias_set(name="old", targets=[{"model": "plain", "weight": 1}])
    (folder / "a.gguf").write_bytes(b"GGUF of a model")
    store = ModelStore(folder / "models")
    stored_model_offer(store=store, manifest=model_import(store, models_at(folder / "a.gguf")[0], "smol"))
    key, raw = key_create(project=project, name="manager", rights=["inference", "models_manage"])
    free = file_create(about=FileAbout(project.pk, key.public_id, "free.jsonl", "batch"), content=b"x")
    read = file_create(about=FileAbout(project.pk, key.public_id, "in.jsonl", "batch"), content=b"x")
    batch = batch_create(order=BatchOrder(project.pk, key.public_id, "/v1/chat/completions", read.public_id))
    job = job_create(kind="pull", asked="org/other")
    adapter = folder / "adapter"
    adapter.mkdir()
    for name in FILES:
        (adapter / name).touch()
    names = {"file": free.public_id, "batch": batch.public_id, "job": job.public_id, "adapter": str(adapter)}
    return names, raw


def test_each_route_that_writes_is_audited_or_one_of_clients(document: dict[str, Any]) -> None:
    writing = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if method in ("post", "put", "patch", "delete")
    }
    assert writing == OF_CLIENTS | OF_A_JOB | set(JSON_CASES) | organization_routes({*OF_ADMIN_KEYS, *CHANGES_NOTHING})


@pytest.mark.usefixtures("described")
async def test_each_audited_route_leaves_one_entry_with_its_key(api: httpx.AsyncClient) -> None:
    for route, (action, path, body) in JSON_CASES.items():
        last = await database_sync_to_async(last_entry)()
        method = route.partition(" ")[0]
        names: dict[str, str] = api.names  # type: ignore[attr-defined]
        if route.startswith("PUT /v1/admin/adapters"):
            body = {"path": names["adapter"]}
        answer = await api.request(method, path.format(**names), json=body)
        assert answer.status_code == 200, (route, answer.text)
        (entry,) = await database_sync_to_async(entries_after)(last)
        assert entry.action == action, route
        assert (entry.actor_kind, entry.actor_name, entry.address) == ("key", "manager", "192.0.2.7"), route
        assert entry.source.startswith(f"API: {method} /"), route
        assert entry.request_id == "asked-1"
    key = await database_sync_to_async(ApiKey.objects.get)()
    assert entry.actor_id == key.public_id


async def test_a_refused_change_leaves_no_entry(api: httpx.AsyncClient) -> None:
    last = await database_sync_to_async(last_entry)()
    refused = await api.patch("/v1/admin/models/plain", json={"fallback": "nowhere"})
    assert refused.status_code == 400
    cancelled = [await api.post(f"/v1/batches/{api.names['batch']}/cancel") for _ in range(2)]  # type: ignore[attr-defined]
    assert [answer.status_code for answer in cancelled] == [200, 200]
    entries = await database_sync_to_async(entries_after)(last)
    assert [entry.action for entry in entries] == ["batch.cancel"], "cancelling again changes nothing"


async def test_a_load_that_no_worker_can_be_asked_for_leaves_no_entry(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*, name: str) -> None:
        raise OSError

    monkeypatch.setattr("chat.catalog.acts.model_load_ask", fail)
    await api.post("/v1/admin/models/load", json={"model": "plain"})
    assert not await AuditEntry.objects.filter(action="model.load").aexists()


async def test_a_load_from_the_playground_is_one_of_its_user(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> dict[str, ModelCondition]:
        return {"plain": ModelCondition("unloaded")}

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr("chat.playground.offered.models_live", live)
    monkeypatch.setattr("chat.playground.api_views.configuration_refresh", refresh)
    client = AsyncClient()
    await client.aforce_login(await database_sync_to_async(member)("ann"))
    answer = await client.post("/playground/api/models/load", {"model": "plain"}, content_type="application/json")
    assert answer.status_code == 200
    entry = await AuditEntry.objects.filter(action="model.load").aget()
    assert (entry.actor_kind, entry.actor_name, entry.source) == ("user", "ann", "playground")
