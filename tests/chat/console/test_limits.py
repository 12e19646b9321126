"""Limits in the console: who may give what, what holds then, and two people who change a row at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.access.accounts import playground_caller
from chat.access.keys import key_caller, key_create
from chat.catalog.services import model_register, model_resolve, models_for_caller
from chat.models import ApiKey, Membership, Project, ServedModel
from chat.relay.state.meters import Measure, Period, Rate
from tests.chat.console.test_keys import form_data
from tests.chat.console.test_lists import model_data
from tests.people import member


def project_data(project: Project, **fields: Any) -> dict[str, Any]:
    return {"name": project.name, "may_share": "on", **fields}


def test_limits_of_every_scope_reach_the_caller(admin_client: Client, project: Project) -> None:
    user = member("ada", org=project.org)
    project.members.add(user)
    key, _ = key_create(project=project, name="own", owner=user, requests_per_day=9, max_context=100)
    membership = Membership.objects.get(user=user)
    pages = [
        ("org", project.org.pk, {"name": project.org.name, "tokens_per_day": 5}),
        ("project", project.pk, project_data(project, members=[user.pk], requests_per_minute=4, max_queue_percent=50)),
        ("membership", membership.pk, {"role": "member", "may_chat": "on", "max_concurrency": 2}),
    ]
    for name, row, data in pages:
        answer = admin_client.post(reverse(f"admin:chat_{name}_change", args=[row]), data)
        assert answer.status_code == 302, answer.text
    own, account, of_project, org = key_caller(public_id=key.public_id).scopes()
    assert own.rates == (Rate(Measure.REQUESTS, Period.DAY, 9),)
    assert (own.max_context, account.max_live, of_project.queue_percent) == (100, 2, 50)
    assert of_project.rates == (Rate(Measure.REQUESTS, Period.MINUTE, 4),)
    assert org.rates == (Rate(Measure.TOKENS, Period.DAY, 5),)
    page = admin_client.get(reverse("admin:chat_apikey_change", args=[key.pk])).text
    assert "requests per minute: 4 (the project)" in page
    assert "tokens per day: 5 (the organisation)" in page
    assert "requests at the same time: 2 (its owner&#x27;s account)" in page


def test_the_limit_of_the_installation_is_told_where_it_holds(
    admin_client: Client, project: Project, settings: Any
) -> None:
    """Every page said that an empty field meant it, and the limits in force left it out."""
    settings.LIGHTCONE_MAX_LIVE_PER_KEY = 33
    key, _ = key_create(project=project, name="own")
    page = admin_client.get(reverse("admin:chat_apikey_change", args=[key.pk])).text
    assert "requests at the same time: 33 (the installation)" in page
    assert "Empty, or more than it: 33, the limit of the installation." in page
    page = admin_client.get(reverse("admin:chat_project_change", args=[project.pk])).text
    assert "Requests that run or wait. Empty: unlimited." in page
    assert "limit of the installation" not in page


def test_limits_of_a_model_reach_its_requests(admin_client: Client, db: None) -> None:
    model_register(name="large", path="/models/large.gguf")
    row = ServedModel.objects.get()
    data = model_data(is_default="on", requests_per_minute=3)
    assert admin_client.post(reverse("admin:chat_servedmodel_change", args=[row.pk]), data).status_code == 302
    entry = model_resolve(name="large")
    assert entry is not None
    assert entry.scope is not None
    assert entry.scope.rates == (Rate(Measure.REQUESTS, Period.MINUTE, 3),)


def test_nobody_gives_a_key_more_than_its_project(client: Client, project: Project) -> None:
    Project.objects.update(requests_per_minute=10)
    user = member("ada", org=project.org)
    project.members.add(user)
    client.force_login(user)
    page = reverse("admin:chat_apikey_add")
    refused = client.post(page, form_data(project, requests_per_minute=11))
    assert refused.status_code == 200
    assert "the project allows at most 10" in refused.text
    assert not ApiKey.objects.exists()
    assert client.post(page, form_data(project, requests_per_minute=10)).status_code == 200
    assert ApiKey.objects.get().requests_per_minute == 10


@pytest.mark.parametrize("value", ["0", "-1", "NaN", "1e3", "99999999999", "lots"])
def test_a_figure_that_is_none_is_refused_and_nothing_saved(admin_client: Client, project: Project, value: str) -> None:
    page = reverse("admin:chat_project_change", args=[project.pk])
    answer = admin_client.post(page, project_data(project, name="other", tokens_per_minute=value))
    assert answer.status_code == 200
    assert "errorlist" in answer.text or "text-red" in answer.text
    project.refresh_from_db()
    assert (project.name != "other", project.tokens_per_minute) == (True, None)


def test_a_project_narrows_the_models_of_its_keys_and_of_the_playground(admin_client: Client, project: Project) -> None:
    for name in ("small", "large"):
        model_register(name=name, path=f"/models/{name}.gguf")
    user = member("ada", org=project.org)
    key, _ = key_create(project=project, name="wide")
    narrow, _ = key_create(project=project, name="narrow", model_names=["large"])
    page = reverse("admin:chat_project_change", args=[project.pk])
    assert admin_client.post(page, project_data(project, model_names=["small"])).status_code == 302
    callers = [key_caller(public_id=key.public_id), playground_caller(user=user)]
    assert [[entry.name for entry in models_for_caller(caller=one)] for one in callers] == [["small"]] * 2
    assert models_for_caller(caller=key_caller(public_id=narrow.public_id)) == []


def fresh_of(page: str) -> str:
    found = re.search(r'name="fresh" value="([0-9a-f]+)"', page) or re.search(r'value="([0-9a-f]{32})"', page)
    assert found is not None, "the form carries what it has shown"
    return found[1]


def test_the_second_of_two_administrators_is_told(admin_client: Client, project: Project) -> None:
    model_register(name="large", path="/models/large.gguf")
    key, _ = key_create(project=project, name="k")
    membership = Membership.objects.get(user=member("ada", org=project.org))
    pages: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
        ("apikey", key.pk, form_data(project, name="first"), form_data(project, name="second")),
        ("project", project.pk, project_data(project, name="first"), project_data(project, name="second")),
        ("org", project.org.pk, {"name": "first"}, {"name": "second"}),
        ("membership", membership.pk, {"role": "viewer"}, {"role": "billing"}),
        (
            "servedmodel",
            ServedModel.objects.get().pk,
            model_data(is_default="on", owned_by="first"),
            model_data(is_default="on", owned_by="second"),
        ),
    ]
    for name, row, first, second in pages:
        place = reverse(f"admin:chat_{name}_change", args=[row])
        shown = fresh_of(admin_client.get(place).text)
        assert admin_client.post(place, {**first, "fresh": shown}).status_code == 302, name
        refused = admin_client.post(place, {**second, "fresh": shown})
        assert refused.status_code == 200, name
        assert "Somebody else has changed this" in refused.text
        again = fresh_of(admin_client.get(place).text)
        assert admin_client.post(place, {**second, "fresh": again}).status_code == 302, name
