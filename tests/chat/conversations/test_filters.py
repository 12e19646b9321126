"""Tags, and what a search or a history can be narrowed to, over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from chat.models import Conversation, SearchFacet
from tests.chat.conversations.conftest import Page

TOOLS = {"fields": {"tools": [{"type": "function", "function": {"name": "add"}}]}}
CALLS = [{"id": "c1", "name": "add", "arguments": "{}"}]


def day(number: int) -> datetime:
    return datetime(2026, 3, number, tzinfo=UTC)


def answered(page: Page, chat: str, model: str, **body: Any) -> None:
    """Keep a chat with a question and the answer of a model."""
    page.open(chat)
    page.ask(chat, "q", "tell me of trams")
    answer = {"choices": [{"content": "Yes.", "reasoning": "", "calls": body.pop("calls", [])}], "shown": 0}
    sent = {"parent": "q", "role": "assistant", "state": "ended", "content": answer, "model": model, **body}
    assert page("PUT", f"conversations/{chat}/turns/a", sent)[0] == 200


@pytest.fixture
def chats(ann: Page) -> Page:
    """A page with four chats, one more a day: of two models, some with tools and tags."""
    answered(ann, "a", "Small")
    answered(ann, "b", "Large", parameters=TOOLS)
    answered(ann, "c", "Small", calls=CALLS)
    answered(ann, "d", "Large")
    for chat, tags in (("a", ["Work"]), ("b", ["work", "Trips"]), ("d", ["Ünï"])):
        assert ann("PATCH", f"conversations/{chat}", {"version": 1, "tags": tags})[0] == 200
    for number, chat in enumerate("abcd", 1):
        Conversation.objects.filter(public_id=chat).update(updated_at=day(number))
    return ann


def listed(page: Page, query: str) -> str:
    status, answer = page("GET", "conversations", QUERY_STRING=query)
    assert status == 200, answer
    return "".join(entry["id"] for entry in answer["data"])


FILTERS = {
    "model=small": "ca",
    "model=LARGE": "db",
    "model=none": "",
    "tag=WORK": "ba",
    "tag=%C3%BCN%C3%8F": "d",
    "tag=work&model=Large": "b",
    "has_tools=true": "cb",
    "has_tools=true&model=Small": "c",
    "has_tools=false": "dcba",
    f"since={day(2).timestamp():.0f}": "dcb",
    f"until={day(2).timestamp():.0f}": "a",
    f"since={day(2).timestamp():.0f}&until={day(4).timestamp():.0f}": "cb",
    f"tag=work&since={day(2).timestamp():.0f}": "b",
}


@pytest.mark.parametrize(("query", "found"), FILTERS.items())
def test_filters_find_chats_without_words_and_with_them(chats: Page, query: str, found: str) -> None:
    assert listed(chats, query) == found
    status, answer = chats("GET", "search", QUERY_STRING=f"q=trams&{query}")
    assert status == 200, answer
    assert "".join(hit["conversation"]["id"] for hit in answer["data"] if hit["turn"]) == found
    assert chats("GET", "search", QUERY_STRING=f"q=zebra&{query}")[1]["data"] == []


def test_what_filters_find_is_paged(chats: Page) -> None:
    assert listed(chats, "model=small&limit=1") == "c"
    assert listed(chats, "model=small&limit=1&after=c") == "a"
    chats("PATCH", "conversations/c", {"version": 1, "is_archived": True})
    assert listed(chats, "model=small") == "a"
    assert listed(chats, "model=small&view=all") == "ca"


def test_models_and_tags_are_listed_to_choose_from(chats: Page, bob: Page) -> None:
    assert chats("GET", "facets")[1] == {"models": ["Large", "Small"], "tags": ["Trips", "Work", "Ünï"]}
    assert bob("GET", "facets")[1] == {"models": [], "tags": []}
    assert listed(bob, "model=small") == ""
    chats("POST", "delete", {"ids": ["b", "d"]})
    assert chats("GET", "facets")[1] == {"models": ["Small"], "tags": ["Work"]}
    chats("POST", "restore", {"ids": ["d"]})
    assert listed(chats, "tag=ünï") == "d"


def test_tags_are_trimmed_and_each_is_kept_once(ann: Page) -> None:
    made = ann.open("a", tags=["  two  words ", "Work", "WORK", "work "])
    assert made["tags"] == ["two words", "Work"]
    changed = ann("PATCH", "conversations/a", {"version": 1, "tags": ["work"]})[1]
    assert (changed["tags"], changed["version"], ann.read("a")["tags"]) == (["work"], 2, ["work"])
    assert ann("PATCH", "conversations/a", {"version": 2, "title": "Other"})[1]["tags"] == ["work"]
    assert listed(ann, "tag=two words") == ""
    assert ann("PATCH", "conversations/a", {"version": 3, "tags": []})[1]["tags"] == []
    assert listed(ann, "tag=work") == ""
    assert ann("GET", "facets")[1]["tags"] == []


@pytest.mark.parametrize(
    ("tags", "part"),
    [
        ([str(number) for number in range(21)], "at most 20 items, got 21"),
        (["x" * 41], "40 characters"),
        ([" "], "must not be empty"),
        ([1], "string"),
        (["a\0"], "NUL"),
        ("work", "array"),
    ],
)
def test_bad_tags_are_refused_with_their_limit(ann: Page, tags: Any, part: str) -> None:
    status, answer = ann("PUT", "conversations/a", {"tags": tags})
    assert status == 400
    assert answer["error"]["param"].startswith("tags")
    assert part in answer["error"]["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("since=5&until=5", "until"),
        ("since=x", "since"),
        (f"until={10**15}", "until"),
        ("has_tools=perhaps", "has_tools"),
        ("model=" + "x" * 201, "model"),
        ("tag=" + "x" * 41, "tag"),
    ],
)
def test_a_bad_filter_is_refused_by_its_field(ann: Page, query: str, param: str) -> None:
    for path, words in (("conversations", ""), ("search", "q=a&")):
        status, answer = ann("GET", path, QUERY_STRING=words + query)
        assert (status, answer["error"]["param"]) == (400, param)


def test_tags_go_out_and_come_in_with_our_json(chats: Page, bob: Page) -> None:
    plain = chats("GET", "conversations/b/export")[1]
    made = bob("POST", "import", {"format": "lightcone", "text": json.dumps(plain)})[1]
    assert (made["unknown"], made["data"][0]["tags"]) == ([], ["work", "Trips"])
    for query in ("tag=work", "model=large", "has_tools=true"):
        assert listed(bob, query) == made["data"][0]["id"]


def test_a_turn_that_is_removed_takes_its_model_along(chats: Page) -> None:
    chats("DELETE", "conversations/c/turns/a")
    assert (listed(chats, "model=small"), listed(chats, "has_tools=true")) == ("a", "b")


def test_a_turn_that_is_removed_leaves_what_another_one_gives(chats: Page) -> None:
    chats.ask("c", "r", "and of buses", parent="a")
    answer = {"choices": [{"content": "Yes.", "reasoning": "", "calls": []}], "shown": 0}
    sent = {"parent": "r", "role": "assistant", "state": "ended", "content": answer, "model": "SMALL"}
    assert chats("PUT", "conversations/c/turns/b", sent | {"parameters": TOOLS})[0] == 200
    assert chats("DELETE", "conversations/c/turns/b")[0] in (200, 204)
    assert "c" in listed(chats, "model=small")
    assert "c" in listed(chats, "has_tools=true")


def test_chats_from_before_the_filters_are_found(chats: Page) -> None:
    """The migration that brings the filters reads what there is, and may have read some of it."""
    SearchFacet.objects.exclude(kind="tag").filter(conversation__public_id__in="abc").delete()
    import_module("chat.migrations.0020_facets_of_turns").index_turns(apps, None)
    assert (listed(chats, "model=small"), listed(chats, "has_tools=true")) == ("ca", "cb")
    assert chats("GET", "facets")[1]["models"] == ["Large", "Small"]
