"""The console gives nobody more rights, keeps one administrator, and keeps the history of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from chat.access.keys import key_create
from chat.access.people import USE_PLAYGROUND
from chat.models import ApiKey, Project

ROOT_FORM = {"username": "root", "is_active": "on", "is_staff": "on", "is_superuser": "on"}


@pytest.fixture
def staff(db: None) -> Callable[..., tuple[User, Client]]:
    """Make a signed-in member of staff with permissions by their short names."""

    def make(name: str, *codenames: str) -> tuple[User, Client]:
        user = User.objects.create_user(name, is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return user, client

    return make


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root", password="first")


@pytest.fixture
def roots_client(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def page(user: User, name: str = "change") -> str:
    return reverse(f"admin:auth_user_{name}", args=[user.pk])


# Rights.


def test_users_cannot_raise_their_own_permissions(staff: Any, root: User) -> None:
    """Staff with user permissions only could set `is_superuser` on their own account."""
    manager, client = staff("manager", "view_user", "add_user", "change_user", "delete_user")
    everything = list(Permission.objects.values_list("pk", flat=True))
    group = Group.objects.create(name="all")
    form = ROOT_FORM | {
        "username": "manager",
        "user_permissions": everything,
        "groups": [group.pk],
        "first_name": "Mary",
    }
    assert client.post(page(manager), form).status_code == 302
    changed = User.objects.get(pk=manager.pk)
    assert changed.first_name == "Mary"
    assert not changed.is_superuser
    assert not changed.groups.exists()
    assert not changed.has_perm("chat.add_apikey")


def test_accounts_with_more_permissions_cannot_be_changed(staff: Any, root: User, project: Project) -> None:
    manager, client = staff("manager", "view_user", "change_user", "delete_user")
    above = {
        "root": root,
        "keeper": staff("keeper", "add_apikey")[0],
        "member": staff("member")[0],
        "asleep": staff("asleep", "add_org")[0],
    }
    project.members.add(above["member"])
    User.objects.filter(username="asleep").update(is_active=False)
    for account in above.values():
        before = (account.password, account.is_active)
        assert client.get(page(account)).status_code == 200
        assert client.post(page(account), {"username": "taken", "is_active": "on"}).status_code == 403
        assert client.get(reverse("admin:auth_user_password_change", args=[account.pk])).status_code == 403
        assert client.post(page(account, "delete"), {"post": "yes"}).status_code == 403
        bulk = {"action": "delete_selected", "_selected_action": [account.pk], "post": "yes"}
        client.post(reverse("admin:auth_user_changelist"), bulk)
        account = User.objects.get(username=account.username)
        assert (account.password, account.username in above) == (before[0], True)
    guest = User.objects.create_user("guest")
    assert client.post(page(guest), {"username": "guest", "first_name": "Gus", "is_active": "on"}).status_code == 302
    assert client.post(page(guest, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="guest").exists()


def test_groups_give_permissions_so_only_superusers_change_them(staff: Any, roots_client: Client) -> None:
    manager, client = staff("manager", "view_group", "add_group", "change_group", "delete_group")
    group = Group.objects.create(name="helpers")
    manager.groups.add(group)
    form = {"name": "helpers", "permissions": list(Permission.objects.values_list("pk", flat=True))}
    for act in (reverse("admin:auth_group_change", args=[group.pk]), reverse("admin:auth_group_add")):
        assert client.post(act, form | {"name": "other"}).status_code == 403
    assert not group.permissions.exists()
    assert roots_client.post(reverse("admin:auth_group_change", args=[group.pk]), form).status_code == 302
    assert group.permissions.exists()


# The last administrator, and history.


@pytest.mark.parametrize("missing", ["is_active", "is_staff", "is_superuser"])
def test_the_last_administrator_cannot_be_demoted(root: User, roots_client: Client, missing: str) -> None:
    form = {name: value for name, value in ROOT_FORM.items() if name != missing}
    answer = roots_client.post(page(root), form)
    assert "only administrator" in answer.text
    User.objects.create_superuser("second")
    assert roots_client.post(page(root), form).status_code == 302
    assert not getattr(User.objects.get(username="root"), missing)


def test_own_and_last_administrator_accounts_cannot_be_deleted(root: User, roots_client: Client) -> None:
    """The page of the only superuser had a working Delete button."""
    User.objects.create_superuser("retired", is_active=False)
    bulk = {"action": "delete_selected", "_selected_action": [root.pk], "post": "yes"}

    def is_refused() -> bool:
        assert page(root, "delete") not in roots_client.get(page(root)).text
        assert "You cannot delete the account" in roots_client.post(reverse("admin:auth_user_changelist"), bulk).text
        return roots_client.post(page(root, "delete"), {"post": "yes"}).status_code == 403

    assert is_refused()
    second = User.objects.create_superuser("second")
    assert is_refused()
    client = Client()
    client.force_login(second)
    assert client.post(page(root, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="root").exists()


def test_the_history_of_changes_outlives_its_accounts(root: User, roots_client: Client, project: Project) -> None:
    second = User.objects.create_superuser("second")
    client = Client()
    client.force_login(second)
    project_page = reverse("admin:chat_project_change", args=[project.pk])
    client.post(project_page, {"name": "Renamed", "org": project.org_id})
    asked = roots_client.get(page(second, "delete"))
    assert "Log entry" not in asked.text
    assert roots_client.post(page(second, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="second").exists()
    entry = LogEntry.objects.get(object_id=str(project.pk), content_type__model="project")
    assert "second" in entry.user.get_username()
    assert not entry.user.is_active
    assert "second" in roots_client.get(reverse("admin:chat_project_history", args=[project.pk])).text
    assert entry.user.get_username() not in roots_client.get(reverse("admin:auth_user_changelist")).text
    assert roots_client.post(page(entry.user, "delete"), {"post": "yes"}).status_code in {302, 403}
    assert LogEntry.objects.filter(pk=entry.pk).exists()


def test_new_accounts_may_chat_until_the_permission_is_revoked(root: User, roots_client: Client) -> None:
    form = {
        "username": "ann",
        "password1": "correct-horse-9",
        "password2": "correct-horse-9",
        "usable_password": "true",
    }
    assert roots_client.post(reverse("admin:auth_user_add"), form).status_code == 302
    ann = User.objects.get(username="ann")
    assert ann.has_perm(USE_PLAYGROUND)
    client = Client()
    client.force_login(ann)
    assert client.get("/").status_code == 200
    assert (
        roots_client.post(page(ann), {"username": "ann", "is_active": "on", "user_permissions": []}).status_code == 302
    )
    refused = client.get("/")
    assert refused.status_code == 403
    assert "may not use the playground" in refused.text


# Keys.


def key_form(project: Project, **fields: Any) -> dict[str, Any]:
    return {
        "name": "new",
        "project": project.pk,
        "rights": ["inference"],
        "min_priority": 0,
        "networks": "",
        "origins": "",
    } | fields


@pytest.fixture
def other(project: Project) -> Project:
    return Project.objects.create(org=project.org, name="Others")


def test_keys_can_be_created_in_own_projects_only(staff: Any, project: Project, other: Project) -> None:
    """Staff could create a key in another organisation's project."""
    maker, client = staff("maker", "add_apikey")
    add = reverse("admin:chat_apikey_add")
    assert "lc-secret" not in client.post(add, key_form(other)).text
    project.members.add(maker)
    assert "lc-secret" not in client.post(add, key_form(other)).text
    assert not ApiKey.objects.exists()
    assert "lc-secret" in client.post(add, key_form(project)).text
    assert ApiKey.objects.get().project == project


def test_keys_get_only_rights_that_their_creator_may_give(staff: Any, project: Project) -> None:
    maker, client = staff("maker", "add_apikey")
    project.members.add(maker)
    add = reverse("admin:chat_apikey_add")
    for fields in ({"rights": ["inference", "chat_template"]}, {"rights": ["keys_manage"]}, {"min_priority": -1}):
        assert "lc-secret" not in client.post(add, key_form(project, **fields)).text
    assert 'value="chat_template"' not in client.get(add).text
    maker.user_permissions.add(*Permission.objects.filter(codename__in=("give_chat_template", "give_urgency")))
    answer = client.post(add, key_form(project, rights=["inference", "chat_template"], min_priority=-5))
    assert "lc-secret" in answer.text


def test_a_key_with_more_rights_cannot_be_changed_or_rotated(staff: Any, project: Project, other: Project) -> None:
    """Rotating a key shows its text and thereby grants its rights."""
    keeper, client = staff("keeper", "view_apikey", "change_apikey", "delete_apikey")
    project.members.add(keeper)
    plain, strong, hasty = (
        key_create(project=project, name=name, **policy)[0]
        for name, policy in (
            ("plain", {}),
            ("strong", {"rights": ["inference", "chat_template"]}),
            ("hasty", {"min_priority": -3}),
        )
    )
    foreign = key_create(project=other, name="foreign")[0]
    for key, status in ((plain, 200), (strong, 403), (hasty, 403), (foreign, 404)):
        rotate = reverse("admin:chat_apikey_rotate", args=[key.pk])
        assert client.post(rotate, {"overlap_hours": "0"}).status_code == status
    for key in (strong, hasty):
        shown = client.get(reverse("admin:chat_apikey_change", args=[key.pk]))
        assert shown.status_code == 200
        assert "/rotate" not in shown.text
        assert client.post(reverse("admin:chat_apikey_change", args=[key.pk]), key_form(project)).status_code == 403
    assert client.post(reverse("admin:chat_apikey_change", args=[plain.pk]), key_form(other)).status_code == 200
    assert ApiKey.objects.get(pk=plain.pk).project == project
    listed = client.get(reverse("admin:chat_apikey_changelist")).text
    assert "plain" in listed
    assert "foreign" not in listed


def test_only_superusers_choose_the_members_of_a_project(staff: Any, project: Project, roots_client: Client) -> None:
    maker, client = staff("maker", "view_project", "change_project", "view_user")
    form = {"name": project.name, "org": project.org_id, "members": [maker.pk]}
    change = reverse("admin:chat_project_change", args=[project.pk])
    client.post(change, form)
    assert not project.members.exists()
    assert roots_client.post(change, form).status_code == 302
    assert list(project.members.all()) == [maker]


# Permissions of pages.


def test_staff_without_permissions_see_no_usage_and_no_entries(staff: Any) -> None:
    """The overview showed requests, tokens and costs to all staff, and a menu of pages that answered 403."""
    _, client = staff("bob")
    shown = client.get(reverse("admin:index"))
    assert shown.status_code == 200
    assert "Welcome, bob" in shown.text
    assert "lc-tile" not in shown.text
    assert reverse("admin:chat_requestlog_changelist") not in shown.text
    _, client = staff("viewer", "view_usagehour", "change_project")
    shown = client.get(reverse("admin:index"))
    assert "lc-tile" in shown.text
    for name, is_listed in (("usagehour", True), ("project", True), ("apikey", False), ("servedmodel", False)):
        assert (f'href="{reverse(f"admin:chat_{name}_changelist")}"' in shown.text) is is_listed


def test_a_refused_page_links_back(staff: Any) -> None:
    """Staff who followed a menu entry without permission saw one line of text."""
    _, client = staff("bob")
    answer = client.get(reverse("admin:chat_requestlog_changelist"))
    assert answer.status_code == 403
    assert "may not open this page" in answer.text
    assert reverse("admin:index") in answer.text
    for path in ("/admin/nowhere/", "/nowhere"):
        answer = client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert "There is no such page" in answer.text


def test_the_console_refuses_signed_in_users_that_are_no_staff(client: Client, db: None) -> None:
    """They got the sign-in form without an explanation although they were signed in."""
    client.force_login(User.objects.create_user("ann"))
    answer = client.get(reverse("admin:index"), follow=True)
    assert answer.status_code == 403
    assert "may not open this page" in answer.text
    client.logout()
    assert client.get(reverse("admin:login")).status_code == 200
