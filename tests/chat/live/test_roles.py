"""Who sees the live pages and who acts, by the policy of roles."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chat.access.roles import Act, Reach, Role, role_reach
from chat.catalog.services import model_register
from chat.live import acts
from chat.models import Org, Project
from tests.chat.live.floor import NODE, LiveFloor, floor
from tests.people import member

__all__ = ["floor"]
EVERYBODY = pytest.mark.parametrize("role", [None, *Role], ids=lambda role: role or "superuser")


def client_of(role: Role | None, project: Project) -> Client:
    person = User.objects.create_superuser("root") if role is None else member("ann", role.value, org=project.org)
    client = Client()
    client.force_login(person)
    return client


def has(role: Role | None, act: Act) -> bool:
    return role is None or role_reach(role, act) == Reach.ORG


@EVERYBODY
def test_the_snapshot_opens_for_those_who_see_workers_or_models(
    floor: LiveFloor, project: Project, role: Role | None
) -> None:
    client = client_of(role, project)
    for query, act in (
        ({"view": "workers"}, Act.WORKERS_SEE),
        ({"view": "models"}, Act.MODELS_SEE),
        ({"view": "model", "model": "small"}, Act.MODELS_SEE),
    ):
        answer = client.get(reverse("admin:live_snapshot"), query)
        assert answer.status_code == (200 if has(role, act) else 403), query
        assert answer.headers.get("Cache-Control", "no-store").count("no-store") == 1


@EVERYBODY
def test_acts_on_workers_and_requests_are_for_those_who_manage_them(
    floor: LiveFloor, project: Project, role: Role | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(acts, "drain_send", lambda *said: sent.append(said))
    client, model = client_of(role, project), model_register(name="small", path="/models/small.gguf")
    floor.host()
    run_id = floor.run("small", project_id=project.pk)
    pages = {
        ("worker_drain", NODE): Act.WORKERS_MANAGE,
        ("worker_resume", NODE): Act.WORKERS_MANAGE,
        ("request_cancel", run_id): Act.WORKERS_MANAGE,
        ("model_warm", model.pk): Act.MODELS_MANAGE,
        ("model_fit", model.pk): Act.MODELS_MANAGE,
    }
    for (name, argument), act in pages.items():
        place = reverse(f"admin:{name}", args=[argument])
        if not has(role, act):
            assert client.get(place).status_code == 403, name
            assert client.post(place).status_code == (405 if name == "model_fit" else 403), name
        elif name != "model_fit":  # which starts a process that reads the files
            assert client.get(place).status_code == 200, name
    assert sent == []


def test_links_to_acts_show_to_those_who_may_act(floor: LiveFloor, project: Project) -> None:
    floor.host()
    floor.lease("small")
    for role, is_shown in ((Role.ADMIN, True), (Role.VIEWER, False)):
        client = Client()
        client.force_login(member(role.value, role.value, org=project.org))
        text = client.get(reverse("admin:workers")).text
        assert NODE in text
        assert (reverse("admin:worker_drain", args=[NODE]) in text) == is_shown


def test_an_unknown_panel_is_refused_by_a_sentence(floor: LiveFloor, admin_client: Client) -> None:
    for query in ({}, {"view": "nothing"}, {"view": "model"}, {"view": "workers", "model": "small"}):
        assert admin_client.get(reverse("admin:live_snapshot"), query).status_code == 404


def test_a_request_names_its_project_to_those_who_see_that(floor: LiveFloor, project: Project) -> None:
    away = Project.objects.create(org=Org.objects.create(name="Away"), name="Secret")
    floor.lease("small")
    run_id = floor.run("small", project_id=away.pk)
    floor.run("small", project_id=project.pk)
    for role, is_named in ((None, True), (Role.OWNER, False)):
        client = client_of(role, project)
        text = client.get(reverse("admin:workers")).text
        assert (run_id in text, project.name in text) == (True, True)
        assert ("Secret" in text, "another organisation" in text) == (is_named, not is_named)
        live = client.get(reverse("admin:live_snapshot"), {"view": "workers"})
        assert ("Secret" in live.text) == is_named
        known = {run["run_id"]: run["project"] for run in live.json()["snapshot"]["runs"]}
        assert known[run_id] == ("Secret" if is_named else None)
