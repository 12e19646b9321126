"""The last active project of an organisation, and chats without one."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.access.chat_projects import chat_project, default_project
from chat.access.projects import project_delete
from chat.models import Org, Project
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
