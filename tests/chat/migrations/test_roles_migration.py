"""The migration to roles gives each account the role that is nearest to its permissions."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connection

from chat.models import Membership, Org, Project

migration: Any = import_module("chat.migrations.0021_roles")


def account(name: str, *codenames: str, is_staff: bool = True, **fields: Any) -> User:
    user = User.objects.create_user(name, is_staff=is_staff, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


@pytest.mark.django_db
def test_accounts_get_the_role_that_their_permissions_come_to(django_user_model: Any) -> None:
    first, second = (Org.objects.create(name=name) for name in ("First", "Second"))
    kind = Permission.objects.get(codename="view_project").content_type
    for codename in ("use_playground", "view_usagehour"):
        Permission.objects.get_or_create(codename=codename, content_type=kind)
    group = Group.objects.create(name="Lookers")
    group.permissions.set(Permission.objects.filter(codename="view_requestlog"))
    User.objects.create_superuser("root")
    account("boss", "change_user", "change_servedmodel", "change_apikey", "use_playground")
    account("models", "change_servedmodel")
    account("looks").groups.add(group)
    account("pays", "view_usagehour", is_active=False)
    account("chats", "use_playground", is_staff=False)
    account("has rights but is no staff", "view_requestlog", is_staff=False)
    account("(deleted 7) gone")
    maker = account("maker", "add_apikey")
    Project.objects.create(org=second, name="P").members.add(maker)

    migration.map_people(apps, SimpleNamespace(connection=connection))

    assert list(Org.objects.filter(is_operator=True)) == [first]
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    for one in Membership.objects.select_related("user", "org"):
        found.setdefault(one.user.username, {})[one.org.name] = (one.role, one.may_chat)
    everywhere = lambda role, may_chat: {"First": (role, may_chat), "Second": (role, may_chat)}  # noqa: E731
    assert found == {
        "root": everywhere("owner", True),
        "boss": everywhere("admin", True),
        "models": {"First": ("member", False)},
        "looks": everywhere("viewer", False),
        "pays": everywhere("billing", False),
        "chats": {"First": ("member", True)},
        "has rights but is no staff": {"First": ("member", False)},
        "maker": everywhere("member", False),
    }


@pytest.mark.django_db
def test_an_empty_installation_has_nobody_to_map() -> None:
    migration.map_people(apps, SimpleNamespace(connection=connection))
    assert not Membership.objects.exists()


@pytest.mark.django_db
def test_many_accounts_take_few_queries(django_assert_max_num_queries: Any) -> None:
    """5,000 accounts held the table of keys, and all writers of SQLite, for a minute."""
    org = Org.objects.create(name="First")
    people = User.objects.bulk_create(User(username=f"user {number}") for number in range(400))
    with django_assert_max_num_queries(20):
        migration.map_people(apps, SimpleNamespace(connection=connection))
    assert Membership.objects.filter(org=org, user__in=people).count() == 400
