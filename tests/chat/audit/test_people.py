"""Sign-ins, accounts, links, exports and reads of chats: who did it, from where, and no password."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client, override_settings

from chat.access.account_audit import UNKNOWN
from chat.access.accounts import bootstrap_create
from chat.conversations import urls as conversation_urls
from chat.models import AuditEntry
from chat.playground import api_urls
from tests.chat.audit.secrets_of_tests import PASSWORD, entries_after, last_entry
from tests.chat.conversations.conftest import API, Page, ann, page_of
from tests.people import member

__all__ = ["ann", "page_of"]
pytestmark = pytest.mark.django_db

AUDITED = {
    *("conversation_export", "conversations_export", "conversation_links", "conversation_link"),
    "playground_model_load",
}
OF_THEIR_OWNER = {
    *("conversations", "conversations_search", "conversation_folders", "conversation_facets", "conversations_import"),
    *("new_chat_draft", "conversations_delete", "conversations_restore", "conversations_change"),
    *("shared_conversation", "conversation", "conversation_turns", "conversation_turn", "conversation_draft"),
    *("chat_files", "chat_file"),
    *("playground_state", "playground_presets", "playground_preset"),
    *("playground_models", "playground_fields", "playground_render", "playground_check", "playground_count"),
}
"""What people do with chats and presets of their own, and what only reads."""


def actions(last: int = 0) -> list[str]:
    return [entry.action for entry in entries_after(last)]


# Signing in and out.


@pytest.fixture
def cy(django_user_model: Any) -> User:
    return member("cy", password=PASSWORD)


@pytest.mark.parametrize("way_out", ["/sign-out", "/admin/logout/"])
@pytest.mark.usefixtures("valkey")
def test_signing_in_and_out_is_recorded(cy: User, way_out: str) -> None:
    client, last = Client(REMOTE_ADDR="192.0.2.9"), last_entry()
    client.post("/sign-in", {"username": "cy", "password": PASSWORD})
    client.post(way_out)
    came, went = entries_after(last)
    assert came.after == {"method": "password"}
    assert (came.action, went.action) == ("user.sign_in", "user.sign_out")
    for entry in (came, went):
        assert (entry.actor_kind, entry.actor_name, entry.object_name) == ("user", "cy", "cy")
        assert entry.address == "192.0.2.9"


@pytest.mark.usefixtures("valkey")
def test_behind_a_listed_proxy_the_address_is_the_clients(cy: User, settings: Any) -> None:
    settings.LIGHTCONE_TRUSTED_PROXIES = ["127.0.0.0/8"]
    last = last_entry()
    for sent in ("203.0.113.5", "10.0.0.1, 203.0.113.5"):
        Client().post("/sign-in", {"username": "cy", "password": PASSWORD}, headers={"X-Forwarded-For": sent})
    assert [entry.address for entry in entries_after(last)] == ["203.0.113.5"] * 2


@pytest.mark.usefixtures("valkey")
def test_failed_sign_ins_name_accounts_alone(cy: User) -> None:
    """People type passwords into the field of the name, so that a name that no account has is not kept."""
    last = last_entry()
    client = Client(REMOTE_ADDR="192.0.2.10")
    client.post("/sign-in", {"username": "cy", "password": "wrong"})
    client.post("/sign-in", {"username": PASSWORD, "password": "wrong"})
    known, unknown = entries_after(last)
    assert (known.action, known.object_name, known.object_id) == ("user.sign_in_failed", "cy", str(cy.pk))
    assert (unknown.object_name, unknown.object_id) == (UNKNOWN, "")
    assert {known.actor_kind, unknown.actor_kind} == {"nobody"}


@pytest.mark.usefixtures("valkey")
def test_a_right_password_without_access_is_a_failed_sign_in(django_user_model: Any) -> None:
    django_user_model.objects.create_user("guest", password=PASSWORD)
    last = last_entry()
    Client(REMOTE_ADDR="192.0.2.11").post("/sign-in", {"username": "guest", "password": PASSWORD})
    assert actions(last) == ["user.sign_in_failed"]


@pytest.mark.usefixtures("valkey")
def test_a_password_that_is_stored_by_a_newer_method_is_not_a_changed_one(cy: User) -> None:
    class Older(PBKDF2PasswordHasher):
        iterations = 1

    hashers = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    with override_settings(PASSWORD_HASHERS=hashers):
        User.objects.filter(pk=cy.pk).update(password=make_password(PASSWORD, hasher=Older()))
        last = last_entry()
        Client(REMOTE_ADDR="192.0.2.12").post("/sign-in", {"username": "cy", "password": PASSWORD})
    cy.refresh_from_db()
    assert "$1$" not in cy.password
    assert actions(last) == ["user.sign_in"]


# Accounts by other ways than the console.


def test_accounts_of_commands_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", "--noinput", "--username", "root", "--email", "", stdout=io.StringIO())
    monkeypatch.setattr("getpass.getpass", lambda **_: f"{PASSWORD}?")
    call_command("changepassword", "root", stdout=io.StringIO())
    call_command("password", "root", stdout=io.StringIO(), stderr=io.StringIO())
    assert actions() == ["user.create", "user.password", "user.password"]
    assert {entry.actor_kind for entry in entries_after(0)} == {"command"}


def test_the_first_start_records_all_that_it_makes() -> None:
    made = bootstrap_create(admin_password=PASSWORD)
    assert actions() == ["org.create", "project.create", "user.create", "member.create", "key.create"]
    assert made.api_key
    assert made.api_key.rpartition("_")[2] not in repr(list(AuditEntry.objects.values()))
    bootstrap_create()
    assert len(actions()) == 5


# Chats.


def test_each_route_of_the_page_is_audited_or_of_its_owner() -> None:
    names = {url.name for module in (conversation_urls, api_urls) for url in module.urlpatterns}
    assert names == AUDITED | OF_THEIR_OWNER


def test_links_are_recorded_without_token_and_password(ann: Page) -> None:  # noqa: F811
    ann.open("c", title="Of nobody's business")
    ann.ask("c", "t", "hello")
    last = last_entry()
    status, link = ann("POST", "conversations/c/links", {"expires_in_s": 3600, "password": PASSWORD})
    assert status == 200
    assert ann("DELETE", f"conversations/c/links/{link['id']}")[0] == 200
    made, revoked = entries_after(last)
    assert (made.action, revoked.action) == ("link.create", "link.revoke")
    assert made.after["password"] == revoked.before["password"] == "***"
    assert made.after["conversation"] == "c"
    stored = repr(list(AuditEntry.objects.values()))
    assert link["token"] not in stored
    assert "business" not in stored


def test_exports_of_chats_are_recorded(ann: Page) -> None:  # noqa: F811
    ann.open("c", title="Of nobody's business")
    ann.ask("c", "t", "hello")
    last = last_entry()
    assert ann("GET", "conversations/c/export", QUERY_STRING="format=markdown")[0] == 200
    body = {"format": "json", "ids": ["c"]}
    assert ann.client.post(f"{API}export", body, content_type="application/json").status_code == 200
    one, several = entries_after(last)
    assert {entry.action for entry in (one, several)} == {"chats.export"}
    assert (one.object_name, several.actor_name) == ("ann", "ann")
    assert (one.after, several.after) == (
        {"format": "markdown", "conversation": "c"},
        {"format": "json", "number": 1},
    )


def test_an_administrator_who_reads_chats_of_others_is_recorded(
    ann: Page,  # noqa: F811
    page_of: Callable[..., Page],  # noqa: F811
    settings: Any,
) -> None:
    ann.open("c", title="Of nobody's business")
    root = page_of("root", is_superuser=True)
    assert ann.user is not None
    query, last = f"user={ann.user.pk}", last_entry()
    assert root("GET", "conversations/c", QUERY_STRING=query)[0] == 403
    assert actions(last) == []
    settings.LIGHTCONE_CHAT_ADMIN_READ = True
    assert root("GET", "conversations/c", QUERY_STRING=query)[0] == 200
    assert root("GET", "conversations", QUERY_STRING=query)[0] == 200
    assert root("GET", "search", QUERY_STRING=f"{query}&q=business")[0] == 200
    assert root("GET", "draft", QUERY_STRING=query)[0] == 403
    assert root("GET", "conversations")[0] == ann("GET", "conversations/c")[0] == 200
    one, listed, found = entries_after(last)
    assert {entry.action for entry in (one, listed, found)} == {"chats.read"}
    assert (one.actor_name, one.object_name, one.object_id) == ("root", "ann", str(ann.user.pk))
    assert one.after == {"what": "conversation", "conversation": "c"}
    assert (listed.after, found.after) == ({"what": "conversations"}, {"what": "conversations_search"})
