"""The routes that manage models: who may, what they show and change, and what they refuse."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from redis.asyncio import Redis

from chat.access.keys import key_create
from chat.catalog.services import model_register
from chat.catalog.stored_models import stored_model_offer
from chat.model_store.folder import ModelStore
from chat.model_store.local import model_import, models_at
from chat.models import ModelJob, Org, Project, ServedModel
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.workers import ModelCondition
from tests.chat.model_store.conftest import described as described  # noqa: PLC0414  # a fixture

MODELS, JOBS = "/v1/admin/models", "/v1/admin/jobs"
CONDITION = ModelCondition("ready", max_model_len=2048, memory_bytes=123, computed_by="by hand")


@pytest.fixture
async def keys(transactional_db: None, valkey: str, settings: Any, tmp_path: Path) -> dict[str, str]:
    """Texts of a key with the right `models_manage`, and of one without."""
    settings.LIGHTCONE_REDIS_URL, settings.LIGHTCONE_DEPLOYMENT = valkey, f"test-{secrets.token_hex(4)}"
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "models"

    def make() -> dict[str, str]:
        project = Project.objects.create(org=Org.objects.create(name="Acme"), name="Search")
        model_register(name="plain", path="/models/plain.gguf")
        rights = ["inference", "models_manage"]
        return {
            "manager": key_create(project=project, name="one", rights=rights)[1],
            "other": key_create(project=project, name="two")[1],
        }

    return await database_sync_to_async(make)()


@pytest.fixture
async def api(keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    from lightcone_site.asgi import http

    async def live() -> dict[str, ModelCondition]:
        return {"plain": CONDITION}

    monkeypatch.setattr("chat.model_jobs.views.models_live", live)
    headers = {"Authorization": f"Bearer {keys['manager']}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http), base_url="http://localhost", headers=headers
    ) as client:
        yield client


@database_sync_to_async
def stored(tmp_path: Path, name: str = "smol") -> Path:
    """Store and offer a model; return its file."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF of a model")
    store = ModelStore(tmp_path / "models")
    [found] = models_at(file)
    manifest = model_import(store, found, name)
    stored_model_offer(store=store, manifest=manifest)
    return store.model_path(name)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", MODELS),
        ("GET", f"{MODELS}/plain"),
        ("PATCH", f"{MODELS}/plain"),
        ("DELETE", f"{MODELS}/plain"),
        ("POST", f"{MODELS}/pull"),
        ("POST", f"{MODELS}/nothing"),
        ("GET", JOBS),
        ("GET", f"{JOBS}/job_1"),
        ("DELETE", f"{JOBS}/job_1"),
    ],
)
async def test_only_keys_with_the_right_to_manage_models_may(
    api: httpx.AsyncClient, keys: dict[str, str], method: str, path: str
) -> None:
    answer = await api.request(method, path, headers={"Authorization": f"Bearer {keys['other']}"})
    assert answer.status_code == 403
    assert "Manage models" in answer.json()["error"]["message"]
    assert (await api.request(method, path, headers={"Authorization": "Bearer none"})).status_code == 401


async def test_models_are_listed_with_their_state_and_what_is_stored(api: httpx.AsyncClient, tmp_path: Path) -> None:
    path = await stored(tmp_path)
    listed = (await api.get(MODELS)).json()["data"]
    plain, smol = listed
    assert (plain["id"], plain["state"], plain["memory_bytes"], plain["context"]) == ("plain", "ready", 123, 2048)
    assert plain["stored"] is None
    assert (smol["state"], smol["path"], smol["stored"]["model_file"]) == ("unloaded", str(path), "a.gguf")
    assert smol["stored"]["files"][0]["sha256"]
    assert smol["maker_defaults"] == {"temperature": 0.2}
    assert (await api.get(f"{MODELS}/smol")).json() == smol
    assert (await api.get(f"{MODELS}/none")).status_code == 404


async def test_a_model_is_changed_by_what_is_sent_alone(api: httpx.AsyncClient) -> None:
    body = {"pinned": True, "idle_s": 60, "max_model_len": 512, "aliases": ["p"], "sampling_defaults": {"top_p": 0.5}}
    answer = await api.patch(f"{MODELS}/plain", json=body)
    assert {name: answer.json()[name] for name in body} == body
    answer = await api.patch(f"{MODELS}/plain", json={"idle_s": None, "enabled": False})
    changed = answer.json()
    assert (changed["idle_s"], changed["enabled"], changed["pinned"], changed["max_model_len"]) == (
        *(None, False),
        *(True, 512),
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"idle_s": -1}, "idle_s"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"colour": "red"}, "colour"),
        ({"pinned": None}, "pinned"),
        ({"sampling_defaults": {"temperature": 9}}, "temperature"),
        ({"aliases": ["smol"]}, "aliases"),
        ({"aliases": [1]}, "aliases.0"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_by_its_field(
    api: httpx.AsyncClient, tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    await stored(tmp_path)
    answer = await api.patch(f"{MODELS}/plain", json=body)
    assert answer.status_code == 400, answer.text
    assert param in (answer.json()["error"]["param"] or "") + answer.json()["error"]["message"]


async def test_a_stored_model_is_copied_and_removed_with_its_files(api: httpx.AsyncClient, tmp_path: Path) -> None:
    path = await stored(tmp_path)
    answer = await api.post(f"{MODELS}/copy", json={"model": "smol", "name": "org/twin:1"})
    assert (answer.status_code, answer.json()["id"]) == (200, "org/twin:1")
    assert (await api.post(f"{MODELS}/copy", json={"model": "smol", "name": "org/twin:1"})).status_code == 400
    assert (await api.post(f"{MODELS}/copy", json={"model": "smol", "name": "../x"})).status_code == 400
    removed = await api.delete(f"{MODELS}/smol")
    assert removed.json()["num_bytes"] > 15
    assert not path.exists()
    names = [one["id"] for one in (await api.get(MODELS)).json()["data"]]
    assert names == ["org/twin:1", "plain"]
    assert (await api.delete(f"{MODELS}/org/twin:1")).status_code == 200
    assert (await api.delete(f"{MODELS}/plain")).json()["num_bytes"] == 0
    assert (await api.delete(f"{MODELS}/plain")).status_code == 404


async def test_loading_asks_a_worker_that_has_the_files(
    api: httpx.AsyncClient, valkey: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(tmp_path)
    answer = await api.post(f"{MODELS}/load", json={"model": "smol"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_unloaded")

    async def live() -> dict[str, ModelCondition]:
        return {"smol": ModelCondition("unloaded")}

    monkeypatch.setattr("chat.model_jobs.views.models_live", live)
    demand = Keys(settings.LIGHTCONE_DEPLOYMENT).demand(model_slug("smol"))
    for _ in range(2):
        assert (await api.post(f"{MODELS}/load", json={"model": "smol"})).status_code == 200
    async with Redis.from_url(valkey) as client:
        assert await client.llen(demand) == 1


async def test_unloading_tells_the_workers_but_never_for_a_pinned_model(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("chat.relay.model_acts.unload_send", sent.append)
    assert (await api.post(f"{MODELS}/unload", json={"model": "plain"})).status_code == 200
    assert sent == ["plain"]
    await api.patch(f"{MODELS}/plain", json={"pinned": True})
    answer = await api.post(f"{MODELS}/unload", json={"model": "plain"})
    assert (answer.status_code, "pinned" in answer.json()["error"]["message"]) == (400, True)
    assert sent == ["plain"]


async def test_a_pull_is_a_job_that_can_be_followed_and_cancelled(api: httpx.AsyncClient) -> None:
    answer = await api.post(f"{MODELS}/pull", json={"model": "org/Smol-GGUF:Q4_1", "name": "smol"})
    job = answer.json()
    assert (answer.status_code, job["state"], job["kind"], job["revision"]) == (200, "waiting", "pull", "main")
    assert (await api.get(f"{JOBS}/{job['id']}")).json() == job
    again = await api.post(f"{MODELS}/pull", json={"model": "org/Smol-GGUF:Q4_1", "name": "smol"})
    assert (again.status_code, job["id"] in again.json()["error"]["message"]) == (400, True)
    other = (await api.post(f"{MODELS}/import", json={"path": "/models"})).json()
    assert [one["id"] for one in (await api.get(JOBS)).json()["data"]] == [other["id"], job["id"]]
    cancelled = await api.delete(f"{JOBS}/{job['id']}")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert (await api.get(f"{JOBS}/job_none")).status_code == 404

    @database_sync_to_async
    def run() -> None:
        ModelJob.objects.filter(public_id=other["id"]).update(state="running", num_bytes=100, num_done=40, rate=20.0)

    await run()
    seen = (await api.get(f"{JOBS}/{other['id']}")).json()
    assert (seen["num_done"], seen["bytes_per_second"], seen["seconds_left"]) == (40, 20, 3)
    assert (await api.delete(f"{JOBS}/{other['id']}")).json()["state"] == "cancelling"


@pytest.mark.parametrize(
    ("act", "body", "words"),
    [
        ("pull", {"model": "Smol"}, "OWNER/NAME"),
        ("pull", {"model": "org/Smol", "name": "../x"}, "cannot be a model's name"),
        ("pull", {}, "required"),
        ("pull", {"model": "org/Smol", "format": "Q4"}, "is unknown here"),
        ("import", {"path": ""}, "empty"),
        ("check", {"model": "none"}, "There is no model 'none'"),
        ("load", {"model": "none"}, "GET /v1/admin/models"),
        ("fly", {}, "pull, import, check, copy, load, unload"),
    ],
)
async def test_what_cannot_be_done_is_said_in_a_sentence(
    api: httpx.AsyncClient, act: str, body: dict[str, Any], words: str
) -> None:
    answer = await api.post(f"{MODELS}/{act}", json=body)
    assert answer.status_code in (400, 404)
    assert words in answer.json()["error"]["message"]


async def test_the_row_of_a_model_of_another_machine_is_removed_alone(api: httpx.AsyncClient) -> None:
    assert (await api.delete(f"{MODELS}/plain")).status_code == 200
    assert not await database_sync_to_async(ServedModel.objects.exists)()


async def test_weighted_aliases_are_set_listed_and_deleted(api: httpx.AsyncClient, tmp_path: Path) -> None:
    await stored(tmp_path)
    targets = [{"model": "plain", "weight": 9}, {"model": "smol", "weight": 1}]
    answer = await api.put("/v1/admin/aliases/canary", json={"targets": targets})
    assert answer.json() == {"id": "canary", "object": "alias", "targets": targets}
    assert (await api.get("/v1/admin/aliases")).json()["data"] == [answer.json()]
    for bad in ([], [{"model": "none", "weight": 1}], [{"model": "plain", "weight": 0}], ["plain"], [{}]):
        refused = await api.put("/v1/admin/aliases/canary", json={"targets": bad})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "targets"), bad
    assert (await api.put("/v1/admin/aliases/plain", json={"targets": targets})).status_code == 400
    assert (await api.delete("/v1/admin/aliases/canary")).json()["deleted"]
    assert (await api.delete("/v1/admin/aliases/canary")).status_code == 404


async def test_fallback_deprecation_and_texts_of_a_model_are_set(api: httpx.AsyncClient, tmp_path: Path) -> None:
    await stored(tmp_path)
    body = {"fallback": "smol", "deprecated_at": 1_800_000_000, "system_prompt": "Be brief.", "chat_template": "x"}
    changed = (await api.patch(f"{MODELS}/plain", json=body)).json()
    assert {name: changed[name] for name in body} == body
    refused = await api.patch(f"{MODELS}/smol", json={"fallback": "plain"})
    assert (refused.status_code, "leads back" in refused.json()["error"]["message"]) == (400, True)
    cleared = (await api.patch(f"{MODELS}/plain", json={"fallback": "", "deprecated_at": None})).json()
    assert (cleared["fallback"], cleared["deprecated_at"]) == (None, None)


async def test_adapters_are_set_listed_and_removed(api: httpx.AsyncClient, tmp_path: Path) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).touch()
    answer = await api.put("/v1/admin/adapters/plain:support", json={"path": str(tmp_path)})
    assert (answer.status_code, answer.json()["model"], answer.json()["name"]) == (200, "plain", "support")
    assert [one["id"] for one in (await api.get("/v1/admin/adapters")).json()["data"]] == ["plain:support"]
    for name, status in (("plain:", 400), ("none:support", 404), ("support", 404)):
        assert (await api.put(f"/v1/admin/adapters/{name}", json={"path": str(tmp_path)})).status_code == status
    refused = await api.put("/v1/admin/adapters/plain:x", json={"path": "/nowhere"})
    assert (refused.status_code, "adapter_config.json" in refused.json()["error"]["message"]) == (400, True)
    assert (await api.delete("/v1/admin/adapters/plain:support")).json()["deleted"]
    assert (await api.delete("/v1/admin/adapters/plain:support")).status_code == 404
