"""Admin keys: their own kind, who makes them, what they may, and when they end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import openai as openai_package
import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from chat.access import admin_keys
from chat.access.admin_keys import AdminKeyForbidden, AdminKeyInvalid, admin_key_authenticate, admin_key_create
from chat.access.memberships import membership_change, membership_delete
from chat.access.people import accounts_delete
from chat.access.roles import Role
from chat.masking import mask_secrets
from chat.models import AdminKey, AuditEntry, Project
from tests.chat.organization.conftest import World
from tests.people import member

Opened = Callable[..., httpx.AsyncClient]
PROJECTS = "/v1/organization/projects"


def stored(**columns: Any) -> AdminKey:
    return AdminKey.objects.get(**columns)


@pytest.mark.parametrize("role", Role.values)
def test_owners_and_admins_alone_make_them(project: Project, role: str) -> None:
    person = member("ann", role)
    if role in ("owner", "admin"):
        _, text = admin_key_create(actor=person, org=project.org, name="one")
        assert admin_key_authenticate(raw=text, address="").person == person
    else:
        with pytest.raises(PermissionDenied):
            admin_key_create(actor=person, org=project.org, name="one")


def test_the_database_holds_a_keyed_digest_and_four_characters(project: Project) -> None:
    key, text = admin_key_create(actor=member("olga", "owner"), org=project.org, name="one")
    assert text.startswith(f"lca_{key.public_id}_")
    row = AdminKey.objects.values().get()
    assert row["last4"] == text[-4:]
    assert not any(text[-20:] in str(value) for value in row.values())
    assert mask_secrets(f"key {text}") == f"key lca_{key.public_id}_***"


def test_they_are_kept_to_networks_and_expire(project: Project) -> None:
    owner = member("olga", "owner")
    _, text = admin_key_create(actor=owner, org=project.org, name="one", networks=["192.0.2.0/24"])
    admin_key_authenticate(raw=text, address="192.0.2.9")
    with pytest.raises(AdminKeyForbidden):
        admin_key_authenticate(raw=text, address="198.51.100.1")
    AdminKey.objects.update(expires_at=timezone.now())
    with pytest.raises(AdminKeyInvalid):
        admin_key_authenticate(raw=text, address="192.0.2.9")
    for wrong in ({"networks": ["here"]}, {"name": ""}, {"expires_at": timezone.now() - timedelta(days=1)}):
        with pytest.raises(ValidationError):
            admin_key_create(**{"actor": owner, "org": project.org, "name": "two"} | wrong)


def demoted(person: User) -> None:
    membership_change(membership=person.memberships.get(), role=Role.VIEWER, may_chat=True)


def removed(person: User) -> None:
    membership_delete(membership=person.memberships.get())


def gone(person: User) -> None:
    accounts_delete(actor=User.objects.get(username="boss"), accounts=[person])


@pytest.mark.parametrize("end", [demoted, removed, gone])
def test_a_key_ends_with_the_role_of_its_maker_for_good(project: Project, end: Callable[[User], None]) -> None:
    member("boss", "owner")
    person = member("adam", "admin")
    key, text = admin_key_create(actor=person, org=project.org, name="one")
    end(person)
    assert stored(pk=key.pk).revoked_at is not None
    assert AuditEntry.objects.filter(action="admin_key.revoke", object_id=key.public_id).count() == 1
    with pytest.raises(AdminKeyInvalid):
        admin_key_authenticate(raw=text, address="")


def test_a_maker_whose_account_is_closed_is_refused_at_once(project: Project) -> None:
    person = member("adam", "admin")
    _, text = admin_key_create(actor=person, org=project.org, name="one")
    User.objects.filter(pk=person.pk).update(is_active=False)
    with pytest.raises(AdminKeyInvalid):
        admin_key_authenticate(raw=text, address="")


def test_use_is_noted_once_a_minute(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    key, text = admin_key_create(actor=member("olga", "owner"), org=project.org, name="one")
    admin_key_authenticate(raw=text, address="")
    first = stored(pk=key.pk).last_used_at
    admin_key_authenticate(raw=text, address="")
    assert first is not None
    assert stored(pk=key.pk).last_used_at == first
    monkeypatch.setattr(admin_keys, "USE_NOTED_EACH", timedelta(0))
    admin_key_authenticate(raw=text, address="")
    assert stored(pk=key.pk).last_used_at > first


async def test_no_kind_of_key_opens_what_the_other_does(world: World, opened: Opened) -> None:
    for path in ("/v1/models", "/v1/chat/completions", "/v1/admin/models", "/v1/files"):
        answer = await opened(world.text).request("GET", path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key"), path
        assert "/v1/organization alone" in answer.json()["error"]["message"]
    for path in (PROJECTS, "/v1/organization", "/v1/organization/nowhere"):
        for text in (world.chat_text, "", f"{world.text[:-1]}x"):
            answer = await opened(text).get(path)
            assert answer.status_code == 401, (path, text)
            assert answer.json()["error"]["type"] == "invalid_request_error"
    assert (await opened(world.text).get("/v1/organization/nowhere")).status_code == 404
    assert (await opened(world.text).put(PROJECTS, json={})).status_code == 405


async def test_addresses_that_guess_have_to_wait(world: World, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    from chat.access.authentication import AuthFailures

    monkeypatch.setattr("chat.api.view._failures", AuthFailures(limit=2, window_s=60))
    wrong = opened(f"lca_{'a' * 12}_{'0' * 48}")
    assert [(await wrong.get(PROJECTS)).status_code for _ in range(3)] == [401, 401, 429]
    assert (await opened(world.text).get(PROJECTS)).status_code == 200


async def test_openais_client_manages_admin_keys(world: World, openai: Any, opened: Opened) -> None:
    made = await openai.admin_api_keys.create(name="ci", expires_in_seconds=3600)
    assert made.object == "organization.admin_api_key"
    assert made.owner.id == f"user-{world.owner.pk}"
    assert made.expires_at - made.created_at in (3599, 3600, 3601)
    assert (await opened(made.value).get(PROJECTS)).status_code == 200
    listed = [key async for key in openai.admin_api_keys.list(limit=1)]
    assert [key.name for key in listed] == ["terraform", "ci"]
    assert [key.name async for key in openai.admin_api_keys.list(limit=1, order="desc")] == ["ci", "terraform"]
    found = await openai.admin_api_keys.retrieve(made.id)
    assert found.redacted_value.endswith(made.value[-4:])
    assert getattr(found, "value", None) is None
    assert (await openai.admin_api_keys.delete(made.id)).deleted is True
    assert (await opened(made.value).get(PROJECTS)).status_code == 401
    with pytest.raises(openai_package.NotFoundError):
        await openai.admin_api_keys.retrieve(made.id)


async def test_a_key_makes_none_that_outlives_it_or_works_elsewhere(world: World, opened: Opened) -> None:
    def bound() -> str:
        end = timezone.now() + timedelta(hours=1)
        return admin_key_create(actor=world.owner, org=world.org, name="bound", networks=["192.0.2.7"], expires_at=end)[
            1
        ]

    client = opened(await database_sync_to_async(bound)())
    path = "/v1/organization/admin_api_keys"
    made = (await client.post(path, json={"name": "next"})).json()
    row = await database_sync_to_async(stored)(name="next")
    assert row.networks == ["192.0.2.7"]
    assert made["expires_at"] == int((await database_sync_to_async(stored)(name="bound")).expires_at.timestamp())
    refused = await client.post(path, json={"name": "longer", "expires_in_seconds": 7200})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "expires_in_seconds")


async def test_the_server_lets_bodies_of_admin_keys_in(world: World, opened: Opened) -> None:
    """It looks at the key of a body before it reads the body, and knew API keys alone."""
    from chat.api.middleware import body_admit

    for path in (PROJECTS, f"{PROJECTS}/proj_1/users", "/v1/organization/nowhere"):
        headers = [(b"authorization", f"Bearer {world.text}".encode()), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
        assert (await body_admit(scope)).known is None


async def test_a_key_without_its_maker_is_listed(world: World, openai: Any) -> None:
    ann = await database_sync_to_async(member)("adam", "admin", org=world.org)
    key, _ = await database_sync_to_async(admin_key_create)(actor=ann, org=world.org, name="left")
    await AdminKey.objects.filter(pk=key.pk).aupdate(owner=None)
    assert [(one.name, one.owner is None) async for one in openai.admin_api_keys.list()] == [
        ("terraform", False),
        ("left", True),
    ]
