"""Drafts are kept for their owner alone, count against the quota, and leave the server nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from chat.conversations.drafts import MAX_DRAFT_BYTES
from chat.models import ChatSpace, Draft
from tests.chat.conversations.conftest import Page

OF_CHAT, OF_NEW_CHAT = "conversations/a/draft", "draft"
TYPED = {"text": "half a zebra", "files": [{"name": "x"}]}
PLACES = pytest.mark.parametrize("path", [OF_CHAT, OF_NEW_CHAT])


@pytest.fixture(autouse=True)
def _conversation(ann: Page) -> None:
    ann.open("a", title="Chat")


def space(page: Page) -> int:
    return ChatSpace.objects.get(user=page.user).num_bytes


@PLACES
def test_the_last_draft_is_kept_until_it_is_cleared(ann: Page, path: str) -> None:
    before = space(ann)
    assert ann("GET", path) == (200, {})
    assert ann("PUT", path, {"text": "first"})[0] == 200
    status, saved = ann("PUT", path, TYPED)
    assert (status, list(saved)) == (200, ["saved_at"])
    assert saved["saved_at"] == Draft.objects.get().saved_at.timestamp()
    assert ann("GET", path) == (200, TYPED)
    assert space(ann) > before
    assert ann("DELETE", path) == (200, {"num_deleted": 1})
    assert ann("DELETE", path) == (200, {"num_deleted": 0})
    assert (ann("GET", path), space(ann)) == ((200, {}), before)


def test_drafts_of_chats_are_apart_and_come_with_them(ann: Page) -> None:
    ann.open("b")
    ann("PUT", OF_CHAT, TYPED)
    ann("PUT", OF_NEW_CHAT, {"text": "new"})
    assert (ann.read("a")["draft"], ann.read("b")["draft"]) == (TYPED, {})


def test_typing_is_no_change_of_the_conversation(ann: Page) -> None:
    before = ann.read("a")
    ann("PUT", OF_CHAT, TYPED)
    after = ann.read("a")
    assert (after["updated_at"], after["version"]) == (before["updated_at"], before["version"])


def test_a_draft_is_in_no_search_export_or_link(ann: Page) -> None:
    ann.ask("a", "1", "Hello")
    ann("PUT", OF_CHAT, TYPED)
    ann("PUT", OF_NEW_CHAT, TYPED)
    assert ann.found("zebra") == []
    for name in ("json", "markdown", "jsonl"):
        assert "zebra" not in str(ann("GET", "conversations/a/export", QUERY_STRING=f"format={name}")[1])
    token = ann("POST", "conversations/a/links", {})[1]["token"]
    assert "zebra" not in str(ann("GET", f"shared/{token}")[1])


def test_a_draft_goes_with_its_conversation(ann: Page) -> None:
    empty = space(ann)
    ann("PUT", OF_CHAT, TYPED)
    ann("DELETE", "conversations/a")
    assert space(ann) == 0
    assert ann("GET", OF_CHAT)[0] == ann("PUT", OF_CHAT, TYPED)[0] == 404
    ann("POST", "restore", {"ids": ["a"]})
    assert ann("GET", OF_CHAT) == (200, TYPED)
    assert space(ann) > empty
    assert ann.user is not None
    ann("PUT", OF_NEW_CHAT, TYPED)
    ann.user.delete()
    assert not Draft.objects.exists()


def test_nobody_else_reads_or_writes_a_draft(ann: Page, bob: Page, page_of: Any, settings: Any) -> None:
    settings.LIGHTCONE_CHAT_ADMIN_READ = True
    ann("PUT", OF_CHAT, TYPED)
    ann("PUT", OF_NEW_CHAT, TYPED)
    assert bob("GET", OF_CHAT)[0] == bob("PUT", OF_CHAT, {})[0] == bob("DELETE", OF_CHAT)[0] == 404
    assert bob("GET", OF_NEW_CHAT) == (200, {})
    root = page_of("root", is_superuser=True)
    query = f"user={ann.user.pk}"  # type: ignore[union-attr]
    for path in (OF_CHAT, OF_NEW_CHAT):
        assert root("GET", path, QUERY_STRING=query)[0] == 403
    status, seen = root("GET", "conversations/a", QUERY_STRING=query)
    assert (status, seen["title"], seen["draft"]) == (200, "Chat", {})


@PLACES
def test_a_draft_is_bounded(ann: Page, path: str, settings: Any) -> None:
    status, refused = ann("PUT", path, {"text": "x" * MAX_DRAFT_BYTES})
    assert (status, refused["error"]["code"]) == (413, "request_too_large")
    assert ann("PUT", path, "[]")[0] == 400
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = space(ann) + 20
    status, refused = ann("PUT", path, {"text": "x" * 100})
    assert (status, refused["error"]["code"]) == (429, "insufficient_quota")
    assert ann("GET", path) == (200, {})
