"""The console's pages of admin keys, and projects that are archived there."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from chat.access.admin_keys import AdminKeyInvalid, admin_key_authenticate, admin_key_create
from chat.access.keys import KeyInvalid, key_caller, key_create
from chat.models import AdminKey, Org, Project
from tests.people import member


def test_a_key_is_shown_once_and_is_its_makers(client: Client, project: Project) -> None:
    client.force_login(member("adam", "admin"))
    form = {"name": "ci", "org": project.org_id, "networks": "192.0.2.0/24", "expires_at_0": "", "expires_at_1": ""}
    shown = client.post(reverse("admin:chat_adminkey_add"), form)
    (text,) = re.findall(r"lca_[a-z0-9]{12}_[0-9a-f]{48}", shown.text)
    assert "no-store" in shown["Cache-Control"]
    caller = admin_key_authenticate(raw=text, address="192.0.2.1")
    assert (caller.person.get_username(), caller.org) == ("adam", project.org)
    key = AdminKey.objects.get()
    page = client.get(reverse("admin:chat_adminkey_change", args=[key.pk])).text
    assert text not in page
    assert f"lca_{key.public_id}_…{key.last4}" in page
    assert "Requests with it are answered 401" in client.get(reverse("admin:chat_adminkey_revoke", args=[key.pk])).text
    client.post(reverse("admin:chat_adminkey_revoke", args=[key.pk]))
    with pytest.raises(AdminKeyInvalid):
        admin_key_authenticate(raw=text, address="192.0.2.1")
    assert "Revoked" in client.get(reverse("admin:chat_adminkey_changelist")).text


def test_bad_forms_make_no_key(client: Client, project: Project) -> None:
    client.force_login(member("adam", "admin"))
    good = {"name": "ci", "org": project.org_id}
    for wrong in (
        {"networks": "here"},
        {"name": ""},
        {"expires_at_0": "2020-01-01", "expires_at_1": "00:00"},
        {"org": "999"},
    ):
        answer = client.post(reverse("admin:chat_adminkey_add"), good | wrong)
        assert answer.status_code == 200, wrong
        assert "errornote" in answer.text or "error" in answer.text, wrong
    assert not AdminKey.objects.exists()


def test_a_project_is_archived_and_restored(client: Client, project: Project) -> None:
    client.force_login(member("adam", "admin"))
    key, _ = key_create(project=project, name="app")
    archive, restore = (reverse(f"admin:chat_project_{act}", args=[project.pk]) for act in ("archive", "restore"))
    assert "only active project" in client.post(archive, follow=True).text
    Project.objects.create(org=project.org, name="Second")
    client.post(archive)
    assert Project.objects.get(pk=project.pk).archived_at is not None
    with pytest.raises(KeyInvalid):
        key_caller(public_id=key.public_id)
    client.post(restore)
    assert key_caller(public_id=key.public_id).project_id == project.pk


def test_an_organisation_takes_its_admin_keys_along(admin_client: Client, project: Project) -> None:
    other = Org.objects.create(name="Other")
    admin_key_create(actor=member("olga", "owner", org=other), org=other, name="ci")
    Org.objects.get(pk=other.pk).memberships.all().delete()
    admin_client.post(reverse("admin:chat_org_delete", args=[other.pk]), {"post": "yes"})
    assert not Org.objects.filter(pk=other.pk).exists()
    assert not AdminKey.objects.exists()
