"""Conversations over HTTP: created once, listed, changed by version, deleted with undo, and nobody else's business."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from chat.conversations import services
from chat.models import ChatSpace, Conversation, SearchText, ShareLink, Turn
from chat.tasks import chats_retention
from tests.chat.conversations.conftest import Page


def ids(page: Page, query: str = "") -> list[str]:
    status, answer = page("GET", "conversations", QUERY_STRING=query)
    assert status == 200, answer
    return [entry["id"] for entry in answer["data"]]


def test_creating_twice_makes_one_conversation(ann: Page) -> None:
    first = ann.open("a", title="Trip", settings={"model": "tiny", "system": "Be brief."})
    assert ann.open("a", title="Other") == first
    assert first["settings"] == {"model": "tiny", "system": "Be brief."}
    assert ids(ann) == ["a"]


def test_history_is_paged_by_the_latest_change(ann: Page) -> None:
    for name in "abc":
        ann.open(name)
    ann.ask("a", "1", "hello")
    assert ids(ann) == ["a", "c", "b"]
    status, page = ann("GET", "conversations", QUERY_STRING="limit=2")
    assert (status, page["has_more"], page["admins_can_read"]) == (200, True, False)
    assert ids(ann, "limit=2&after=c") == ["b"]
    assert ann("GET", "conversations", QUERY_STRING="after=zz")[1]["error"]["param"] == "after"


def test_folders_pins_and_the_archive_divide_the_history(ann: Page) -> None:
    for name in "abc":
        ann.open(name, folder="Work" if name == "a" else "")
    ann("PATCH", "conversations/b", {"version": 1, "is_pinned": True})
    ann("PATCH", "conversations/c", {"version": 1, "is_archived": True})
    assert ids(ann) == ["b", "a"] or ids(ann) == ["a", "b"]
    assert ids(ann, "folder=Work") == ["a"]
    assert ids(ann, "view=pinned") == ["b"]
    assert ids(ann, "view=archived") == ["c"]
    assert ann("GET", "folders") == (200, {"data": ["Work"]})
    ann("PATCH", "conversations/b", {"version": 2, "is_pinned": False})
    assert ids(ann, "view=pinned") == []


def test_a_change_from_an_old_version_is_refused(ann: Page) -> None:
    ann.open("a")
    assert ann("PATCH", "conversations/a", {"version": 1, "title": "One"})[1]["version"] == 2
    status, answer = ann("PATCH", "conversations/a", {"version": 1, "title": "Two"})
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (409, "conflict", "version")
    assert ann.read("a")["title"] == "One"
    assert ann("PATCH", "conversations/a", {"title": "Two"})[1]["error"]["param"] == "version"


def test_deleted_conversations_come_back_whole(ann: Page) -> None:
    for name in "ab":
        ann.open(name)
        ann.ask(name, "1", "hello")
    used = ChatSpace.objects.get().num_bytes
    assert ann("POST", "delete", {"ids": ["a", "b"]}) == (200, {"num_deleted": 2})
    assert ChatSpace.objects.get().num_bytes == 0
    assert ids(ann) == []
    assert ids(ann, "view=deleted") == ["b", "a"]
    assert ann("GET", "conversations/a")[0] == 404
    assert ann("PUT", "conversations/a", {})[0] == 404, "its id is not free"
    assert ann.found("hello") == []
    assert ann("POST", "restore", {"ids": ["a"]}) == (200, {"num_restored": 1})
    assert [turn["content"] for turn in ann.read("a")["turns"]] == ["hello"]
    assert ChatSpace.objects.get().num_bytes == used // 2
    assert ann("DELETE", "conversations/a") == (200, {"num_deleted": 1})
    assert ann("DELETE", "conversations/a") == (200, {"num_deleted": 0})


def test_nobody_learns_of_the_conversations_of_others(ann: Page, bob: Page) -> None:
    ann.open("a", title="secret")
    ann.ask("a", "1", "secret")
    for method, path, body in (
        ("GET", "conversations/a", None),
        ("PATCH", "conversations/a", {"version": 1, "title": "x"}),
        ("PUT", "conversations/a/turns/1", {"role": "user", "state": "ended", "content": "x"}),
        ("DELETE", "conversations/a/turns/1", None),
        ("GET", "conversations/a/export", None),
        ("POST", "conversations/a/links", {}),
        ("DELETE", "conversations/a/links/1", None),
    ):
        status, answer = bob(method, path, body)
        assert (status, answer["error"]["message"]) == (404, "You have no conversation of this id."), path
    assert bob("DELETE", "conversations/a") == (200, {"num_deleted": 0})
    assert bob("POST", "restore", {"ids": ["a"]}) == (200, {"num_restored": 0})
    assert bob.found("secret") == []
    assert ids(bob) == []
    assert bob.open("a")["title"] == "", "the same id is his own conversation"
    assert ann.read("a")["title"] == "secret"


def test_administrators_read_only_where_a_setting_says_so(ann: Page, page_of: Any, settings: Any) -> None:
    ann.open("a")
    root = page_of("root", is_superuser=True)
    asked = f"user={ann.user.pk}"
    assert root("GET", "conversations/a", QUERY_STRING=asked)[0] == 403
    assert root("GET", "conversations/a")[0] == 404
    settings.LIGHTCONE_CHAT_ADMIN_READ = True
    assert ids(root, asked) == ["a"]
    assert root("GET", "conversations/a", QUERY_STRING=asked)[0] == 200
    assert root("DELETE", "conversations/a", QUERY_STRING=asked)[0] == 403
    assert ann("GET", "conversations")[1]["admins_can_read"] is True, "their owners are told"
    assert ann("GET", "conversations", QUERY_STRING=f"user={root.user.pk}")[0] == 403


def test_strangers_get_errors_in_json(ann: Page) -> None:
    status, answer = Page()("GET", "conversations")
    assert (status, answer["error"]["code"]) == (401, "signed_out")
    ann.user.memberships.update(may_chat=False)
    status, answer = ann("GET", "conversations")
    assert (status, answer["error"]["code"]) == (403, "permission_denied")


def test_a_write_needs_the_token_against_forged_requests(ann: Page) -> None:
    strict = Page(ann.user, enforce_csrf_checks=True)
    status, answer = strict("PUT", "conversations/a", {})
    assert (status, answer["error"]["code"]) == (403, "permission_denied")
    assert "X-CSRFToken" in answer["error"]["message"]
    strict.client.get("/")
    token = strict.client.cookies["lightcone_csrf"].value
    assert strict("PUT", "conversations/a", {}, HTTP_X_CSRFTOKEN=token)[0] == 200
    assert strict("GET", "conversations")[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"title": "x" * 1_000_000}, 400, "title"),
        ({"title": "a\0b"}, 400, "title"),
        ({"folder": "x" * 101}, 400, "folder"),
        ({"settings": []}, 400, "settings"),
        ({"colour": "red"}, 400, "colour"),
        ('{"settings": ' + '{"a":' * 70 + "1" + "}" * 71, 400, None),
        ('{"title": "\\ud800"}', 400, None),
        ("[]", 400, None),
        ({"title": "x" * 1_100_000}, 413, None),
    ],
)
def test_hostile_fields_are_refused_by_name(ann: Page, body: Any, status: int, param: str | None) -> None:
    answered, answer = ann("PUT", "conversations/a", body)
    assert (answered, answer["error"]["param"]) == (status, param)
    assert not Conversation.objects.exists()


@pytest.mark.parametrize("path", ["conversations/" + "a" * 65, "conversations/a%00", "conversations/a/turns/b.c"])
def test_hostile_ids_are_unknown(ann: Page, path: str) -> None:
    assert ann("PUT", path, {})[0] == 404


def test_other_methods_are_refused_with_those_that_are_allowed(ann: Page) -> None:
    status, answer = ann("POST", "conversations", {})
    assert (status, answer["error"]["code"]) == (405, "method_not_allowed")


def test_the_quota_counts_texts_and_is_named(ann: Page, settings: Any) -> None:
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = 2_000
    ann.open("a")
    body = {"role": "user", "state": "ended", "content": "x" * 2_000}
    status, answer = ann("PUT", "conversations/a/turns/1", body)
    assert (status, answer["error"]["code"]) == (429, "insufficient_quota")
    assert "2000 bytes" in answer["error"]["message"]
    assert ann.read("a")["turns"] == []
    ann.ask("a", "1", "x" * 500)
    used = ChatSpace.objects.get().num_bytes
    assert used == Conversation.objects.get().num_bytes > 500
    ann("DELETE", "conversations/a/turns/1")
    assert ChatSpace.objects.get().num_bytes == services.ROW_BYTES


def test_too_many_conversations_are_refused(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_CONVERSATIONS", 1)
    ann.open("a")
    assert ann("PUT", "conversations/b", {})[0] == 429


def test_an_account_takes_its_conversations_along(ann: Page, bob: Page) -> None:
    for page in (ann, bob):
        page.open("a")
        page.ask("a", "1", "hello")
        page("POST", "conversations/a/links", {})
    ann.user.delete()
    for model in (Conversation, Turn, ShareLink, ChatSpace):
        assert model.objects.count() == 1, model
    assert SearchText.objects.count() == 2, "a turn and a title"
    assert bob.found("hello") == [("a", "1"), ("a", None)]


def test_retention_removes_what_is_old_and_what_was_deleted(ann: Page, settings: Any) -> None:
    for name in ("old", "new", "gone", "undo"):
        ann.open(name)
        ann.ask(name, "1", "hello")
    ann("POST", "delete", {"ids": ["gone", "undo"]})
    now = timezone.now()
    Conversation.objects.filter(public_id="old").update(updated_at=now - timedelta(days=31))
    Conversation.objects.filter(public_id="gone").update(deleted_at=now - services.RESTORABLE - timedelta(seconds=1))
    chats_retention()
    left = set(Conversation.objects.values_list("public_id", flat=True))
    assert left == {"old", "new", "undo"}, "0 days: for ever"
    settings.LIGHTCONE_CHAT_DAYS = 30
    chats_retention()
    assert set(Conversation.objects.values_list("public_id", flat=True)) == {"new", "undo"}
    assert ChatSpace.objects.get().num_bytes == Conversation.objects.get(public_id="new").num_bytes
    assert ann.found("hello") == [("new", "1"), ("new", None)]
