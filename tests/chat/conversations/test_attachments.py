"""Files that are attached to a question: kept, found and exported with it, but in no link."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat.models import Conversation
from tests.chat.conversations.conftest import Page

FILE = {"type": "text", "text": "plans.txt:\n\nzebra", "attachment": "plans.txt"}
TYPED = {"type": "text", "text": "What is it:\n\nan animal?"}
OLD_FILE = {"type": "text", "text": "plans.txt:\n\nzebra"}
OLD_TYPED = {"type": "text", "text": "What is it?"}


def asked(page: Page, *parts: dict[str, Any], role: str = "user") -> None:
    page.open("a")
    turn = {"role": role, "state": "ended", "content": list(parts)}
    assert page("PUT", "conversations/a/turns/1", turn)[0] == 200


def shared(page: Page) -> dict[str, Any]:
    """Return what a reader of a new link to the chat gets."""
    status, link = page("POST", "conversations/a/links", {})
    assert status == 200, link
    copy: dict[str, Any] = Page()("GET", f"shared/{link['token']}")[1]
    return {name: copy[name] for name in ("title", "turns")}


@pytest.mark.parametrize("parts", [(FILE, TYPED), (FILE, FILE, TYPED)])
def test_a_link_has_what_was_typed_and_no_file(ann: Page, parts: tuple[dict[str, Any], ...]) -> None:
    """The text of an attached file was in the public copy, as any text of the question."""
    asked(ann, *parts)
    assert shared(ann) == {
        "title": "What is it: an animal?",
        "turns": [{"role": "user", "text": "What is it:\n\nan animal?"}],
    }


def test_a_question_that_is_a_file_alone_is_in_no_link(ann: Page) -> None:
    asked(ann, FILE)
    assert shared(ann) == {"title": "plans.txt", "turns": []}


def test_a_file_of_an_older_question_is_known_by_how_it_begins(ann: Page) -> None:
    asked(ann, OLD_FILE, OLD_FILE, OLD_TYPED)
    assert shared(ann) == {"title": "What is it?", "turns": [{"role": "user", "text": "What is it?"}]}


def test_the_page_is_told_which_parts_of_an_older_question_are_files(ann: Page) -> None:
    """Page and server had a rule each for how a file begins."""
    asked(ann, OLD_FILE, OLD_TYPED)
    assert ann.read("a")["turns"][0]["content"] == [FILE, OLD_TYPED]
    assert ann("GET", "conversations/a/export", QUERY_STRING="format=json")[1]["turns"][0]["content"] == [
        OLD_FILE,
        OLD_TYPED,
    ]


@pytest.mark.parametrize(
    ("stored", "title"), [("plans.txt: zebra What is it?", "What is it?"), ("plans.txt: zebra", "plans.txt: zebra")]
)
def test_a_title_that_was_cut_from_a_file_is_in_no_link(ann: Page, stored: str, title: str) -> None:
    """Titles were cut from the whole of the first question. One that its owner wrote stays."""
    asked(ann, OLD_FILE, OLD_TYPED)
    Conversation.objects.update(title=stored)
    assert shared(ann)["title"] == title


def test_a_result_of_a_tool_is_no_file_however_it_begins(ann: Page) -> None:
    asked(ann, OLD_FILE, role="tool")
    assert shared(ann)["turns"] == [{"role": "tool", "text": "plans.txt:\n\nzebra"}]


def test_search_and_exports_have_the_text_of_a_file(ann: Page) -> None:
    asked(ann, FILE, TYPED)
    assert ann.found("zebra") == [("a", "1")]
    files = {
        name: ann("GET", "conversations/a/export", QUERY_STRING=f"format={name}")[1]
        for name in ("markdown", "json", "jsonl")
    }
    assert "plans.txt:\n\nzebra\n\nWhat is it:\n\nan animal?" in files["markdown"]
    assert files["json"]["turns"][0]["content"] == [FILE, TYPED]
    assert json.loads(files["jsonl"])["messages"][0]["content"] == [OLD_FILE, TYPED], "as the API takes them"


def test_our_json_brings_the_mark_of_a_file_back(ann: Page, bob: Page) -> None:
    asked(ann, FILE, TYPED)
    text = json.dumps(ann("GET", "conversations/a/export", QUERY_STRING="format=json")[1])
    status, made = bob("POST", "import", {"format": "lightcone", "text": text})
    assert status == 200
    assert bob.read(made["data"][0]["id"])["turns"][0]["content"] == [FILE, TYPED]
