"""The last active project of an organisation, and chats without one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.access.chat_projects import chat_project, default_project
from chat.access.invitations import Invited, invitation_accept, invitation_create
from chat.access.keys import key_create
from chat.access.projects import project_delete
from chat.access.roles import Role
from chat.access.selectors import keys_listed
from chat.models import Org, Project
from chat.organization.project_keys import keys_described
from tests.people import member


def test_chats_never_count_to_an_archived_project(project: Project) -> None:
    ann = member("ann")
    Project.objects.update(name="Default", archived_at=timezone.now())
    found = chat_project(user=ann)
    assert (found.name, found.archived_at) == ("Default 2", None)
    assert chat_project(user=ann) == found
    Project.objects.update(archived_at=timezone.now())
    assert (default_project().name, default_project().archived_at) == ("Default 3", None)


def test_an_organisation_with_people_keeps_its_last_active_project(client: Client, project: Project) -> None:
    adam = member("adam", "admin")
    client.force_login(adam)
    old = Project.objects.create(org=project.org, name="Old", archived_at=timezone.now())
    with pytest.raises(ValidationError, match="only active project"):
        project_delete(project=project, actor=adam)
    page = reverse("admin:chat_project_delete", args=[project.pk])
    assert "only active project" in client.post(page, {"post": "yes"}, follow=True).text
    bulk = {"action": "delete_selected", "_selected_action": [project.pk, old.pk], "post": "yes"}
    assert "only active project" in client.post(reverse("admin:chat_project_changelist"), bulk, follow=True).text
    assert Project.objects.count() == 2
    project_delete(project=old, actor=adam)
    Project.objects.create(org=project.org, name="Second")
    client.post(page, {"post": "yes"})
    assert [one.name for one in Project.objects.all()] == ["Second"]


def test_an_organisation_without_people_can_be_emptied(admin_client: Client, project: Project) -> None:
    alone = Project.objects.create(org=Org.objects.create(name="Other"), name="Alone")
    admin_client.post(reverse("admin:chat_project_delete", args=[alone.pk]), {"post": "yes"})
    admin_client.post(reverse("admin:chat_org_delete", args=[alone.org_id]), {"post": "yes"})
    assert not Org.objects.filter(pk=alone.org_id).exists()


def test_an_archived_project_is_only_shown(client: Client, project: Project) -> None:
    adam = member("adam", "admin")
    client.force_login(adam)
    key, _ = key_create(project=project, name="app")
    second = Project.objects.create(org=project.org, name="Second")
    to = Invited(org=project.org, role=Role.MEMBER, projects=(project, second))
    invitation, _ = invitation_create(actor=adam, to=to)
    Project.objects.filter(pk=project.pk).update(archived_at=timezone.now())
    page = reverse("admin:chat_project_change", args=[project.pk])
    assert 'name="name"' not in client.get(page).text
    client.post(page, {"name": "Renamed", "requests_per_minute": "1"})
    stored = Project.objects.get(pk=project.pk)
    assert (stored.name, stored.requests_per_minute) == (project.name, None)
    keys = reverse("admin:chat_apikey_changelist")
    assert "Project archived" in client.get(keys).text
    assert key.public_id not in client.get(keys, {"state": "active"}).text
    assert keys_described([keys_listed().get(pk=key.pk)])[0]["owner_project_access"] == "inactive"
    ann = User.objects.create_user("ann")
    invitation_accept(invitation=invitation, user=ann)
    assert list(ann.projects.all()) == [second]
