"""The system page: facts of the stores, what is wrong first, settings without secrets, and who sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.models import ServedModel
from chat.system import facts
from chat.system.about import MASKED, packages, settings_shown
from chat.system.facts import Stores, problems_of, system_sections
from chat.usage.metrics import SystemState
from tests.people import member

FINE = Stores(SystemState((), {}, {}, 1, 0, (10, 100), {}), "9.1", 3700, "noeviction", 3, 0.0, 0.0)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Stores]:
    """What Valkey says: the last of the list."""
    answers = [FINE]

    async def read() -> Stores:
        return answers[-1]

    monkeypatch.setattr(facts, "_stores_read", read)
    return answers


def client_of(role: str) -> Client:
    client = Client()
    client.force_login(member(f"a-{role}", role))
    return client


def wrong() -> dict[str, str]:
    return {fact.name: fact.problem for fact in problems_of(system_sections())}


@pytest.mark.django_db
def test_real_stores_are_read(valkey: str, admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:system")).text
    for shown in ("SQLite", "noeviction", "Usage records to be written", "django", "BSD-3-Clause"):
        assert shown in text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "name", "text"),
    [
        ({"queue_age_s": 61.0}, "Requests that wait for a worker", "waits for a worker"),
        ({"usage_age_s": 61.0}, "Usage records to be written", "maintenance.log"),
        ({"policy": "allkeys-lru"}, "When it is full", "noeviction"),
        ({"state": replace(FINE.state, memory=(81, 100))}, "Memory", "LIGHTCONE_VALKEY_BYTES"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(said: list[Stores], change: Any, name: str, text: str) -> None:
    assert wrong() == {}
    said.append(replace(FINE, **change))
    assert list(wrong()) == [name]
    assert text in wrong()[name]


@pytest.mark.django_db
def test_a_valkey_that_is_away_is_what_is_wrong(settings: Any, admin_client: Client) -> None:
    settings.LIGHTCONE_REDIS_URL = "unix:///nowhere/valkey.sock"
    assert "No request can be taken" in wrong()["State"]
    for page in ("admin:system", "admin:index"):
        assert "What is wrong now" in admin_client.get(reverse(page)).text


@pytest.mark.django_db
def test_models_without_a_worker_and_low_disks_are_told(
    said: list[Stores], monkeypatch: pytest.MonkeyPatch, admin_client: Client
) -> None:
    ServedModel.objects.create(name="tiny", path="/models/tiny")
    monkeypatch.setattr(facts, "MIN_DISK_BYTES", 2**62)
    assert "no worker" in admin_client.get(reverse("admin:system")).text
    assert all("Free some space" in problem for problem in wrong().values())
    assert wrong()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("role", "status"),
    [("owner", 200), ("admin", 200), ("auditor", 200), ("viewer", 403), ("billing", 403), ("member", 403)],
)
def test_the_system_is_for_those_who_run_it(said: list[Stores], role: str, status: int) -> None:
    said.append(replace(FINE, queue_age_s=99.0))
    client = client_of(role)
    assert client.get(reverse("admin:system")).status_code == status
    overview = client.get(reverse("admin:index")).text
    assert ("What is wrong now" in overview) == (status == 200)
    assert (f'href="{reverse("admin:system")}"' in overview) == (status == 200)


def test_settings_are_shown_without_secrets(settings: Any) -> None:
    settings.LIGHTCONE_SETTINGS_READ = {
        "LIGHTCONE_SECRET_KEY": ("a secret", True),
        "LIGHTCONE_HUB_TOKEN": ("another", True),
        "LIGHTCONE_SMTP_PASSWORD": ("one more", False),
        "LIGHTCONE_REDIS_URL": ("redis://me:hush@valkey:6379/0", True),
        "LIGHTCONE_MAX_OUTPUT_TOKENS": (5, False),
        "LIGHTCONE_MAX_LIVE_PER_KEY": (64, False),
        "LIGHTCONE_HOST_MODELS": (["a", "b"], True),
        "LIGHTCONE_MODEL": ("", False),
    }
    assert {setting.name.removeprefix("LIGHTCONE_"): setting.value for setting in settings_shown()} == {
        "SECRET_KEY": MASKED,
        "HUB_TOKEN": MASKED,
        "SMTP_PASSWORD": MASKED,
        "REDIS_URL": f"redis://me:{MASKED}@valkey:6379/0",
        "MAX_OUTPUT_TOKENS": "5",
        "MAX_LIVE_PER_KEY": "64",
        "HOST_MODELS": "a, b",
        "MODEL": "",
    }
    assert [setting.name for setting in settings_shown() if setting.is_set][-1] == "LIGHTCONE_SECRET_KEY"


def test_every_package_names_its_licence() -> None:
    assert {package.name: package.licence for package in packages() if package.licence == "?"} == {}
