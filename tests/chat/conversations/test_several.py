"""Several chats at once, over HTTP: moved, archived, exported into one file, and brought back from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from chat.conversations import exports
from chat.models import ChatSpace, Conversation
from tests.chat.conversations.conftest import API, Page
from tests.chat.conversations.test_filters import answered


@pytest.fixture
def chats(ann: Page) -> Page:
    for chat, model in (("a", "Small"), ("b", "Large"), ("c", "Small")):
        answered(ann, chat, model)
        ann("PATCH", f"conversations/{chat}", {"version": 1, "title": f"Title {chat}"})
    return ann


def exported(page: Page, **fields: Any) -> tuple[int, str]:
    """Return the status of an export and its text, a streamed one whole."""
    response = page.client.post(f"{API}export", json.dumps(fields), content_type="application/json")
    return response.status_code, written(response) if response.streaming else response.content.decode()


def written(response: Any) -> str:
    async def whole() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(whole)().decode()


def titles(text: str) -> list[str]:
    return [chat["title"] for chat in json.loads(text)["conversations"]]


def test_several_chats_go_into_a_folder_and_into_the_archive(chats: Page) -> None:
    status, answer = chats("POST", "change", {"ids": ["a", "b"], "folder": " Work  place "})
    was = {"folder": "", "is_archived": False}
    assert (status, answer) == (200, {"data": [{"id": "a"} | was, {"id": "b"} | was]})
    assert chats("GET", "folders")[1] == {"data": ["Work place"]}
    assert chats.read("a")["version"] == 3
    status, answer = chats(
        "POST", "change", {"ids": ["b", "c", "unknown"], "is_archived": True, "folder": "Work place"}
    )
    assert [former["folder"] for former in answer["data"]] == ["Work place", ""]
    assert [entry["id"] for entry in chats("GET", "conversations")[1]["data"]] == ["a"]
    used = sum(Conversation.objects.values_list("num_bytes", flat=True))
    assert ChatSpace.objects.get().num_bytes == used


def test_a_change_of_several_tells_only_of_those_that_have_changed(chats: Page, bob: Page) -> None:
    chats("POST", "change", {"ids": ["a"], "is_archived": True})
    archived_at = Conversation.objects.get(public_id="a").archived_at
    answer = chats("POST", "change", {"ids": ["a", "b"], "is_archived": True})[1]
    assert [former["id"] for former in answer["data"]] == ["b"]
    assert Conversation.objects.get(public_id="a").archived_at == archived_at
    assert chats.read("a")["version"] == 3
    assert bob("POST", "change", {"ids": ["a", "b"], "is_archived": False})[1] == {"data": []}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"ids": ["a"]}, "folder"),
        ({"ids": [], "folder": "x"}, "ids"),
        ({"ids": ["a"] * 1001, "folder": "x"}, "ids"),
        ({"folder": "x"}, "ids"),
        ({"ids": ["a"], "folder": "x" * 101}, "folder"),
        ({"ids": ["a"], "title": "x"}, "title"),
    ],
)
def test_a_bad_change_of_several_is_refused_by_its_field(chats: Page, body: Any, param: str) -> None:
    status, answer = chats("POST", "change", body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert not Conversation.objects.exclude(folder="").exists()


def test_chosen_chats_are_one_file_that_comes_back_whole(chats: Page, bob: Page) -> None:
    status, text = exported(chats, format="json", ids=["a", "c", "unknown"])
    assert (status, titles(text)) == (200, ["Title c", "Title a"])
    made = bob("POST", "import", {"format": "lightcone", "text": text})[1]
    assert made["unknown"] == []
    assert [chat["title"] for chat in made["data"]] == ["Title c", "Title a"]
    assert bob.read(made["data"][1]["id"])["turns"][1]["content"]["choices"][0]["content"] == "Yes."


def test_several_chats_in_markdown_and_in_lines_for_openai(chats: Page) -> None:
    _, text = exported(chats, format="markdown", ids=["a", "b"])
    assert text.startswith("# Title b\n\n## User")
    assert "\n\n---\n\n# Title a\n" in text
    _, text = exported(chats, format="jsonl", ids=["a", "b"])
    assert [len(json.loads(line)["messages"]) for line in text.splitlines()] == [2, 2]


def test_all_that_words_or_filters_find_is_exported(chats: Page, bob: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "TEXTS_AT_ONCE", 1)
    assert titles(exported(chats, format="json", model="small")[1]) == ["Title c", "Title a"]
    assert titles(exported(chats, format="json", q="tram", model="large")[1]) == ["Title b"]
    assert titles(exported(chats, format="json", q="yes")[1]) == ["Title c", "Title b", "Title a"]
    assert titles(exported(chats, format="json")[1]) == ["Title c", "Title b", "Title a"]
    for fields in ({"q": "yes"}, {"ids": ["a"]}, {}):
        assert exported(bob, format="json", **fields)[0] == 404


def test_what_is_too_much_for_a_file_is_refused_with_the_limit(chats: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MAX_EXPORTED", 2)
    for fields in ({"q": "yes"}, {}, {"ids": ["a", "b", "c"]}):
        status, text = exported(chats, format="json", **fields)
        assert (status, "at most 2 chats" in text) == (413, True), fields
    assert exported(chats, format="json", ids=["a", "b"])[0] == 200
    monkeypatch.setattr(exports, "MAX_EXPORTED_BYTES", 1_000)
    status, text = exported(chats, format="json", ids=["a", "b"])
    assert (status, "at most 1000 bytes" in text) == (413, True)


def test_a_chat_that_is_deleted_meanwhile_is_left_out(chats: Page) -> None:
    response = chats.client.post(f"{API}export", '{"format": "json"}', content_type="application/json")
    chats("POST", "delete", {"ids": ["c"]})
    assert titles(written(response)) == ["Title b", "Title a"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"format": "csv"}, "format"),
        ({}, "format"),
        ({"format": "json", "ids": []}, "ids"),
        ({"format": "json", "ids": ["a"], "q": "x"}, "ids"),
        ({"format": "json", "ids": ["a"], "has_tools": True}, "ids"),
        ({"format": "json", "since": 2, "until": 1}, "until"),
    ],
)
def test_a_bad_export_is_refused_by_its_field(chats: Page, body: Any, param: str) -> None:
    status, answer = chats("POST", "export", body)
    assert (status, answer["error"]["param"]) == (400, param)


def test_a_file_of_several_is_taken_as_a_whole_or_not_at_all(ann: Page) -> None:
    good = {"object": "lightcone.conversation", "title": "Good", "colour": 1, "turns": []}
    bad = {"object": "lightcone.conversation", "title": "x" * 300, "turns": []}
    for chats, part in (([good, bad], "conversations.1.conversation"), ([], "1 to 100"), ([good] * 101, "1 to 100")):
        text = json.dumps({"object": "lightcone.conversations", "conversations": chats})
        status, answer = ann("POST", "import", {"format": "lightcone", "text": text})
        assert (status, part in str(answer["error"])) == (400, True), answer
    assert not Conversation.objects.exists()
    text = json.dumps({"object": "lightcone.conversations", "conversations": [good], "more": 1})
    made = ann("POST", "import", {"format": "lightcone", "text": text})[1]
    assert made["unknown"] == ["file.more", "conversations.0.conversation.colour"]
