"""The page of workers, its acts, and what a name leads to."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.catalog.services import model_register, model_update
from chat.catalog.weighted_aliases import weighted_alias_set
from chat.live import acts
from chat.live.snapshot import snapshot_read
from chat.live.source import source
from chat.live.ways import way_of
from chat.models import AuditEntry, Project, ServedModel
from tests.chat.live.floor import NODE, LiveFloor, floor

__all__ = ["floor"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is sent to workers."""
    found: list[Any] = []
    for name in ("drain_send", "stop_send"):
        monkeypatch.setattr(acts, name, lambda *said, name=name: found.append((name, *said)))
    return found


def test_the_page_shows_everything_without_javascript(floor: LiveFloor, admin_client: Client, project: Project) -> None:
    model_register(name="small", path="/models/small.gguf")
    floor.host(lines=("worker says <b>hi</b>",), device_used_bytes=8_000_000_000)
    floor.lease("small", num_live=2, num_running=2, input_per_s=120.0, step_ms=4.5, memory_bytes=250_000_000)
    floor.lease("large", "failed", reason="There is no file /x.gguf.")
    run_id = floor.run("small", project_id=project.pk)
    text = admin_client.get(reverse("admin:workers")).text
    for part in (NODE, "A processor", "8.00 GB / 64.00 GB", "120/s", "4.5 ms", "0.25 GB", run_id, project.name):
        assert part in text, part
    assert "There is no file /x.gguf." in text
    assert "worker says &lt;b&gt;hi&lt;/b&gt;" in text
    assert reverse("admin:request_cancel", args=[run_id]) in text


def test_the_page_says_so_while_valkey_is_away(floor: LiveFloor, admin_client: Client, settings: Any) -> None:
    settings.LIGHTCONE_REDIS_URL = "redis://127.0.0.1:1"
    answer = admin_client.get(reverse("admin:workers"))
    assert (answer.status_code, "Valkey or the database does not answer" in answer.text) == (200, True)
    answer = admin_client.get(reverse("admin:live_snapshot"), {"view": "workers"})
    assert (answer.status_code, answer.json()["snapshot"]) == (503, None)


def test_a_drain_says_how_many_requests_end_and_is_sent_once_confirmed(
    floor: LiveFloor, admin_client: Client, sent: list[Any]
) -> None:
    floor.host()
    floor.lease("small", num_live=3)
    place = reverse("admin:worker_drain", args=[NODE])
    assert "3 live requests end undisturbed" in admin_client.get(place).text
    assert sent == []
    admin_client.post(place)
    admin_client.post(reverse("admin:worker_resume", args=[NODE]))
    assert sent == [("drain_send", NODE, True), ("drain_send", NODE, False)]
    assert admin_client.post(reverse("admin:worker_drain", args=["model@nowhere"])).status_code == 404


def test_one_request_is_cancelled_and_the_worker_told(
    floor: LiveFloor, admin_client: Client, sent: list[Any], project: Project
) -> None:
    worker = floor.lease("small")
    run_id = floor.run("small", project_id=project.pk, worker=worker)
    place = reverse("admin:request_cancel", args=[run_id])
    assert "1 live request will be stopped" in admin_client.get(place).text
    admin_client.post(place)
    assert sent == [("stop_send", worker, run_id, "stopped")]
    assert floor.client.hget(floor.keys.meta(run_id), "stop") == b"stopped"
    entry = AuditEntry.objects.get(action="request.cancel")
    assert (entry.object_id, entry.object_name, entry.project_id) == (run_id, "small", project.pk)
    floor.client.hset(floor.keys.meta(run_id), "state", "ended")
    assert "has ended already" in admin_client.get(place, follow=True).text
    assert len(sent) == 1


def test_an_act_that_cannot_be_sent_is_not_recorded(
    floor: LiveFloor, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*said: Any) -> None:
        raise OSError("the broker is away")

    monkeypatch.setattr(acts, "drain_send", refuse)
    floor.host()
    answer = admin_client.post(reverse("admin:worker_drain", args=[NODE]), follow=True)
    assert "the broker is away" in answer.text
    assert not AuditEntry.objects.filter(action="worker.drain").exists()


@pytest.fixture
def models(db: None) -> dict[str, ServedModel]:
    found = {name: model_register(name=name, path=f"/models/{name}") for name in ("small", "large", "spare")}
    found["large"].fallback, found["large"].aliases = "spare", ["big"]
    model_update(model=found["large"])
    weighted_alias_set(name="either", targets=[{"model": "small", "weight": 3}, {"model": "large", "weight": 1}])
    return found


@pytest.mark.usefixtures("models")
def test_a_weighted_name_shows_each_model_and_who_answers_for_it(floor: LiveFloor, admin_client: Client) -> None:
    floor.lease("small", "unloaded")
    floor.lease("large", "failed")
    floor.lease("spare")
    found = snapshot_read(floor.client, floor.keys)
    small, large = way_of("either", found).targets
    assert (small.model, small.share, small.answered_by) == ("small", 0.75, "small")
    assert (large.model, large.answered_by, large.fallbacks) == ("large", "spare", (("spare", "ready"),))
    text = admin_client.get(reverse("admin:model_try"), {"name": "either"}).text
    assert "75 %" in text
    assert "<strong>spare</strong>" in text


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [("", "default", "small"), ("large", "model", "large"), ("big", "alias", "large"), ("no", "unknown", None)],
)
def test_each_kind_of_name_is_told(floor: LiveFloor, name: str, kind: str, model: str | None) -> None:
    way = way_of(name, snapshot_read(floor.client, floor.keys))
    assert (way.kind, [target.model for target in way.targets]) == (kind, [model] if model else [])


def test_a_model_without_worker_or_fallback_is_answered_by_nobody(
    floor: LiveFloor, models: dict[str, ServedModel]
) -> None:
    (target,) = way_of("small", snapshot_read(floor.client, floor.keys)).targets
    assert (target.state, target.answered_by) == ("none", "")


def test_the_page_says_so_where_the_store_holds_what_nobody_reads(
    floor: LiveFloor, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor.client.set(floor.keys.hosts, "no sorted set")
    assert admin_client.get(reverse("admin:workers")).status_code == 200
    monkeypatch.setattr(source, "_read", lambda: int("none"))
    source.forget()
    assert admin_client.get(reverse("admin:workers")).status_code == 200
    assert admin_client.get(reverse("admin:live_snapshot"), {"view": "workers"}).status_code == 503


def test_a_cancel_that_comes_too_late_says_so_and_is_not_recorded(
    floor: LiveFloor, admin_client: Client, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    floor.lease("small")
    run_id = floor.run("small")
    known = acts.run_find

    def ends_now(*, run_id: str) -> Any:
        found = known(run_id=run_id)
        floor.client.hset(floor.keys.meta(run_id), "state", "ended")
        return found

    monkeypatch.setattr(acts, "run_find", ends_now)
    answer = admin_client.post(reverse("admin:request_cancel", args=[run_id]), follow=True)
    assert ("has ended already" in answer.text, "asked for" in answer.text, sent) == (True, False, [])
    assert not AuditEntry.objects.filter(action="request.cancel").exists()


def test_a_refused_pin_says_why(admin_client: Client) -> None:
    model = model_register(name="small", path="/models/small")
    ServedModel.objects.filter(pk=model.pk).update(max_model_len=0)
    answer = admin_client.post(reverse("admin:chat_servedmodel_pin", args=[model.pk]), follow=True)
    assert ("Pin small: " in answer.text, "cannot be reached" in answer.text) == (True, False)
    assert not ServedModel.objects.get(pk=model.pk).pinned
