"""Turns are saved once, end once, and form a tree whatever two tabs do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat.conversations import turns
from chat.models import Conversation, Turn
from tests.chat.conversations.conftest import Page

TURN = "conversations/a/turns/"
ANSWER = {"choices": [{"content": "Hi!", "reasoning": "greet", "calls": []}], "shown": 0}


@pytest.fixture(autouse=True)
def _conversation(ann: Page) -> None:
    ann.open("a")


def answer(state: str, **fields: Any) -> dict[str, Any]:
    return {"parent": "1", "role": "assistant", "state": state, "run": "run-1", **fields}


def test_an_answer_begins_and_ends(ann: Page) -> None:
    ann.ask("a", "1", "Hello\n there")
    ann("PUT", TURN + "2", answer("begun", model="tiny", parameters={"temperature": 0.5}))
    status, ended = ann("PUT", TURN + "2", answer("ended", content=ANSWER, usage={"completion_tokens": 2}))
    assert (status, ended["state"], ended["content"]) == (200, "ended", ANSWER)
    assert (ended["model"], ended["parameters"]) == ("tiny", {"temperature": 0.5}), "what the end does not name stays"
    found = ann.read("a")
    assert [(turn["id"], turn["parent"]) for turn in found["turns"]] == [("1", ""), ("2", "1")]
    assert (found["title"], found["head"], found["num_turns"], found["turns"][1]["run"]) == (
        "Hello there",
        "2",
        2,
        "run-1",
    )


def test_saving_twice_changes_nothing(ann: Page) -> None:
    ann.ask("a", "1", "Hello")
    before = ann.read("a")
    ann.ask("a", "1", "Hello")
    assert ann.read("a") == before


def test_a_late_beginning_undoes_no_end(ann: Page) -> None:
    ann.ask("a", "1", "Hello")
    ann("PUT", TURN + "2", answer("ended", content=ANSWER))
    assert ann("PUT", TURN + "2", answer("begun"))[1]["state"] == "ended"
    assert ann("PUT", TURN + "2", answer("failed", error={"code": "x"}))[1]["state"] == "ended"


def test_an_end_takes_the_place_of_a_failure(ann: Page) -> None:
    ann.ask("a", "1", "Hello")
    ann("PUT", TURN + "2", answer("failed", error={"code": "not_resumable"}))
    assert ann("PUT", TURN + "2", answer("ended", content=ANSWER))[1]["content"] == ANSWER


def test_two_tabs_add_to_each_others_turns(ann: Page) -> None:
    other = Page(ann.user)
    ann.ask("a", "1", "Hello")
    ann.ask("a", "2", "one", parent="1")
    other.ask("a", "3", "other", parent="1")
    assert [turn["id"] for turn in ann.read("a")["turns"]] == ["1", "2", "3"]
    status, refused = other("PUT", TURN + "2", {"parent": "1", "role": "user", "state": "ended", "content": "mine"})
    assert (status, refused["error"]["code"], refused["error"]["param"]) == (409, "conflict", "content")
    assert ann.read("a")["turns"][1]["content"] == "one"


def test_the_shown_leaf_can_be_another_branch(ann: Page) -> None:
    ann.ask("a", "1", "Hello")
    ann.ask("a", "2", "Hello again")
    assert ann("PATCH", "conversations/a", {"head": "1"})[1]["head"] == "1"
    assert ann.read("a")["version"] == 1, "looking is no change"
    assert ann("PATCH", "conversations/a", {"head": "9"})[1]["error"]["param"] == "head"


def test_a_parent_must_be_there_and_never_changes(ann: Page) -> None:
    """So a chain of parents ends: cycles cannot be saved."""
    question = {"role": "user", "state": "ended", "content": "x"}
    for parent in ("1", "2"):
        status, refused = ann("PUT", TURN + "1", {**question, "parent": parent})
        assert (status, refused["error"]["param"]) == (400, "parent")
    ann.ask("a", "1", "x")
    ann.ask("a", "2", "x", parent="1")
    assert ann("PUT", TURN + "1", {**question, "parent": "2"})[0] == 409
    ann.open("b")
    assert ann("PUT", "conversations/b/turns/3", {**question, "parent": "1"})[0] == 400, "of another conversation"


def test_only_a_leaf_can_be_dropped(ann: Page) -> None:
    ann.ask("a", "1", "x")
    ann.ask("a", "2", "y", parent="1")
    assert ann("DELETE", TURN + "1")[0] == 409
    assert ann("DELETE", TURN + "2")[0] == 200
    assert ann("DELETE", TURN + "2")[0] == 404
    found = ann.read("a")
    assert (found["head"], found["num_turns"]) == ("1", 1)
    assert ann.found("y") == []


def test_any_text_is_kept_as_it_is(ann: Page) -> None:
    text = "NUL \0, \u2028, \U0001f600 and <script>"
    ann.ask("a", "1", text)
    assert ann.read("a")["turns"][0]["content"] == text


def test_a_deep_chain_is_read_and_walked(ann: Page) -> None:
    conversation = Conversation.objects.get()
    chain = [turns.TurnSent(f"t{n}", f"t{n - 1}" if n else "", "user", "ended", {"content": "x"}) for n in range(3_000)]
    turns.turns_add(user_id=ann.user.pk, conversation_id="a", sent=chain, head="")
    assert len(ann.read("a")["turns"]) == 3_000
    conversation.refresh_from_db()
    assert len(turns.turns_shown(conversation=conversation)) == 3_000


def test_the_number_of_turns_is_bounded(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_TURNS", 1)
    ann.ask("a", "1", "x")
    status, refused = ann("PUT", TURN + "2", {"role": "user", "state": "ended", "content": "x"})
    assert (status, refused["error"]["code"]) == (429, "insufficient_quota")


def test_answers_that_never_end_are_bounded(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_BEGUN", 1)
    ann.ask("a", "1", "x")
    ann("PUT", TURN + "2", answer("begun"))
    assert ann("PUT", TURN + "3", answer("begun"))[1]["error"]["code"] == "rate_limit_exceeded"
    ann("PUT", TURN + "2", answer("ended", content=ANSWER))
    assert ann("PUT", TURN + "3", answer("begun"))[0] == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"role": "root"}, "role"),
        ({"state": "maybe"}, "state"),
        ({"content": 5}, "content"),
        ({"parent": "a b"}, "parent"),
        ({"run": "a/b"}, "run"),
        ({"usage": []}, "usage"),
        ({"model": "x" * 201}, "model"),
        ({"likes": 1}, "likes"),
        ({"choice": 128}, "choice"),
        ({"cost": {"amount": "1"}}, "cost.currency"),
        ({"request_id": "x" * 129}, "request_id"),
    ],
)
def test_a_bad_turn_is_refused_by_its_field(ann: Page, fields: dict[str, Any], param: str) -> None:
    status, refused = ann("PUT", TURN + "1", {"role": "user", "state": "ended", **fields})
    assert (status, refused["error"]["param"]) == (400, param)
    assert not Turn.objects.exists()


@pytest.mark.parametrize(
    "content",
    [{}, {"choices": 5}, {"choices": [], "shown": 3}, {"choices": ["x"], "shown": "0"}, [1, {"text": 5}], [], None],
)
def test_content_of_any_shape_is_kept_and_exported(ann: Page, content: Any) -> None:
    body = {"role": "assistant", "state": "ended", "content": content}
    assert ann("PUT", TURN + "1", body)[0] == 200
    assert ann.read("a")["turns"][0].get("content") == content
    for name in ("json", "markdown", "jsonl"):
        assert ann("GET", "conversations/a/export", QUERY_STRING=f"format={name}")[0] == 200


def question(number: str, parent: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": number, "parent": parent, "role": "user", "state": "ended", "content": "Hello", **fields}


def test_one_request_begins_a_question_and_its_answer(ann: Page) -> None:
    sent = {"conversation": {"folder": "work"}, "turns": [question("1"), {"id": "2", **answer("begun", choice=0)}]}
    status, made = ann("POST", "conversations/new/turns", sent)
    assert (status, made["conversation"]["title"], made["conversation"]["folder"]) == (200, "Hello", "work")
    assert (made["conversation"]["head"], made["conversation"]["num_turns"]) == ("2", 2)
    assert [(turn["id"], turn["state"]) for turn in made["turns"]] == [("1", "ended"), ("2", "begun")]
    assert ann.read("new")["turns"] == made["turns"]
    sent["conversation"]["folder"] = "play"
    again = ann("POST", "conversations/new/turns", sent)[1]
    assert (again["turns"], again["conversation"]["folder"]) == (made["turns"], "work"), "which is there keeps its own"
    assert again["conversation"]["num_turns"] == 2


def test_several_turns_are_saved_all_or_none(ann: Page) -> None:
    status, refused = ann("POST", "conversations/new/turns", {"turns": [question("1"), question("2", "9")]})
    assert (status, refused["error"]["param"]) == (400, "turns.1.parent")
    assert ann("GET", "conversations/new")[0] == 404
    assert not Turn.objects.exists()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "turns"),
        ({"turns": []}, "turns"),
        ({"turns": [question("1")] * 65}, "turns"),
        ({"turns": [5]}, "turns.0"),
        ({"turns": [question("1", role="root")]}, "turns.0.role"),
        ({"turns": [question("1", likes=1)]}, "turns.0.likes"),
        ({"turns": [question("a b")]}, "turns.0.id"),
        ({"turns": [question("1")], "conversation": {"is_pinned": True}}, "conversation.is_pinned"),
        ({"turns": [question("1")], "conversation": {"title": 5}}, "conversation.title"),
    ],
)
def test_bad_turns_are_refused_by_their_field(ann: Page, body: Any, param: str) -> None:
    status, refused = ann("POST", TURN[:-1], body)
    assert (status, refused["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("choice", "text"), [(1, "two"), (None, "one"), (7, "one")])
def test_what_follows_a_choice_is_exported_behind_it(ann: Page, choice: int | None, text: str) -> None:
    choices = [{"content": "one", "calls": []}, {"content": "two", "calls": []}]
    sent = [
        question("1"),
        {"id": "2", **answer("ended", content={"choices": choices, "shown": 0})},
        question("3", "2", choice=choice),
    ]
    assert ann("POST", TURN[:-1], {"turns": sent})[0] == 200
    lines = ann("GET", "conversations/a/export", QUERY_STRING="format=jsonl")[1]
    assert [message["content"] for message in json.loads(lines)["messages"]] == ["Hello", text, "Hello"]
    assert f"## Assistant\n\n{text}\n" in ann("GET", "conversations/a/export", QUERY_STRING="format=markdown")[1]
    token = ann("POST", "conversations/a/links", {})[1]["token"]
    assert ann("GET", f"shared/{token}")[1]["turns"][1]["text"] == text
