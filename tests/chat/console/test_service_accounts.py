"""The console's pages of service accounts."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from chat.access.keys import key_update
from chat.access.projects import project_archive
from chat.access.service_accounts import service_account_create, service_account_key_create
from chat.models import ApiKey, Project, ServiceAccount
from tests.people import member

TAKEN = "has a service account of this name"


@pytest.fixture
def account(client: Client, project: Project) -> ServiceAccount:
    adam = member("adam", "admin")
    client.force_login(adam)
    Project.objects.create(org=project.org, name="Second")
    return service_account_create(project=project, name="deploy", actor=adam)


def test_a_taken_name_is_refused_in_the_form(client: Client, account: ServiceAccount) -> None:
    form = {"project": account.project_id, "name": "deploy"}
    assert TAKEN in client.post(reverse("admin:chat_serviceaccount_add"), form).text
    other = service_account_create(
        project=account.project, name="other", actor=account.project.org.memberships.get().user
    )
    page = reverse("admin:chat_serviceaccount_change", args=[other.pk])
    assert TAKEN in client.post(page, {"name": "deploy"}).text
    assert client.post(page, {"name": "other"}).status_code == 302
    assert sorted(ServiceAccount.objects.values_list("name", flat=True)) == ["deploy", "other"]


def test_an_account_of_an_archived_project_is_not_changed(client: Client, account: ServiceAccount) -> None:
    adam = account.project.org.memberships.get().user
    page, new_key = (reverse(f"admin:chat_serviceaccount_{act}", args=[account.pk]) for act in ("change", "new_key"))
    assert new_key in client.get(page).text
    project_archive(project=account.project, actor=adam)
    assert new_key not in client.get(page).text
    assert "is archived" in client.post(new_key, follow=True).text
    assert "is archived" in client.post(page, {"name": "release"}).text
    assert not ApiKey.objects.exists()
    assert ServiceAccount.objects.get().name == "deploy"


def test_the_key_of_an_account_stays_in_its_project(client: Client, account: ServiceAccount) -> None:
    adam = account.project.org.memberships.get().user
    key, _ = service_account_key_create(account=account, name="deploy", actor=adam)
    second = Project.objects.get(name="Second")
    page = reverse("admin:chat_apikey_change", args=[key.pk])
    assert 'name="project"' not in client.get(page).text
    form = {"name": "moved", "project": second.pk, "rights": ["inference"], "min_priority": "0"}
    assert client.post(page, form).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.project) == ("moved", account.project)
    key.project = second
    with pytest.raises(ValidationError, match="service account deploy"):
        key_update(key=key)
