"""The first steps on the overview tick themselves off, and are shown to those who run the installation."""

from __future__ import annotations

import json
import shlex

import pytest
from django.test import Client
from django.urls import reverse

from chat.access.keys import key_create
from chat.catalog.services import model_register
from chat.models import ApiKey, Project
from chat.usage.services import usage_records_write
from tests.chat.records import record
from tests.people import member

TITLES = ("Make an API key", "Send a request with it", "Bring somebody in", "Bring your model")


@pytest.fixture
def shown(project: Project, valkey: str) -> Client:
    client = Client()
    client.force_login(member("boss", "owner"))
    return client


def steps(client: Client) -> dict[str, bool]:
    """Return which steps are shown, and whether they are done."""
    guide = client.get(reverse("admin:index")).context.get("guide") or []
    return {step.title: step.is_done for step in guide}


def test_each_step_ticks_itself_off_and_then_the_guide_goes(shown: Client, project: Project) -> None:
    model_register(name="SmolLM2-135M-Instruct", path="/models/small")
    done: set[str] = set()
    acts = (
        lambda: key_create(project=project, name="first"),
        lambda: usage_records_write([record(key_public_id=ApiKey.objects.get().public_id)]),
        lambda: member("ann"),
    )
    for title, act in zip(TITLES, (*acts, lambda: None), strict=True):
        assert steps(shown) == {name: name in done for name in TITLES}
        act()
        done.add(title)
    assert "curl http://testserver/v1/chat/completions" not in shown.get(reverse("admin:index")).text, "it is done"
    model_register(name="mine", path="/models/mine")
    assert steps(shown) == {}


def test_the_line_for_the_terminal_names_the_model_and_no_key(shown: Client) -> None:
    model_register(name="it's", path="/models/odd")
    step = next(step for step in shown.get(reverse("admin:index")).context["guide"] if step.code)
    words = shlex.split(step.code)
    assert words[:3] == ["curl", "http://testserver/v1/chat/completions", "-H"]
    assert json.loads(words[-1])["model"] == "it's"
    assert "$LIGHTCONE_API_KEY" in step.code


@pytest.mark.parametrize("role", ["member", "viewer", "billing", "auditor"])
def test_others_are_not_guided(project: Project, valkey: str, role: str) -> None:
    client = Client()
    client.force_login(member("ann", role))
    assert steps(client) == {}
