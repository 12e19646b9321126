"""Conversations as files and as links."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from chat.conversations import sharing
from chat.models import ChatSpace, Conversation, Membership, Org, Project, ShareLink
from tests.chat.conversations.conftest import Page

CALLS = [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}]
ANSWER = {"choices": [{"content": "Two.", "reasoning": "", "calls": CALLS}], "shown": 0}


@pytest.fixture
def chat(ann: Page) -> str:
    """A conversation with two branches, of which the first is shown."""
    ann.open("a", title="Sums", folder="Work", settings={"model": "tiny"})
    ann.ask("a", "1", "One and one?")
    answer = {"parent": "1", "role": "assistant", "state": "ended", "content": ANSWER, "parameters": {"seed": 1}}
    ann("PUT", "conversations/a/turns/2", answer)
    ann.ask("a", "3", "Two and two?")
    ann("PATCH", "conversations/a", {"head": "2"})
    return "a"


def exported(page: Page, chat: str, name: str) -> Any:
    status, text = page("GET", f"conversations/{chat}/export", QUERY_STRING=f"format={name}")
    assert status == 200
    return text


def imported(page: Page, name: str, text: str) -> Any:
    status, answer = page("POST", "import", {"format": name, "text": text})
    assert status == 200, answer
    return answer


def tree(conversation: dict[str, Any]) -> list[Any]:
    return [{name: turn[name] for name in turn if name not in ("created_at", "run")} for turn in conversation["turns"]]


def test_our_json_brings_the_whole_tree_back(ann: Page, bob: Page, chat: str) -> None:
    made = imported(bob, "lightcone", json.dumps(exported(ann, chat, "json")))
    assert made["unknown"] == []
    copy, original = bob.read(made["data"][0]["id"]), ann.read(chat)
    assert tree(copy) == tree(original)
    assert [copy[name] for name in ("title", "folder", "settings", "head", "num_turns")] == [
        *("Sums", "Work", {"model": "tiny"}, "2", 3)
    ]
    assert bob.found("sums") == [(copy["id"], None)]
    assert len(bob.found("two")) == 2
    assert ChatSpace.objects.get(user=bob.user).num_bytes == copy["num_bytes"]


def test_markdown_has_what_is_shown(ann: Page, chat: str) -> None:
    assert exported(ann, chat, "markdown") == "# Sums\n\n## User\n\nOne and one?\n\n## Assistant\n\nTwo.\n"


def test_parts_of_a_message_are_paragraphs_as_on_the_page(ann: Page) -> None:
    """An attached file and the question behind it ran together in files and copies."""
    ann.open("a", title="Sums")
    parts = [{"type": "text", "text": "sums.md:\n\n1 + 1"}, {"type": "text", "text": "And that?"}]
    ann("PUT", "conversations/a/turns/1", {"role": "user", "state": "ended", "content": parts})
    assert exported(ann, "a", "markdown") == "# Sums\n\n## User\n\nsums.md:\n\n1 + 1\n\nAnd that?\n"


def test_openai_jsonl_goes_out_and_comes_in(ann: Page, chat: str) -> None:
    text = exported(ann, chat, "jsonl")
    function = {"name": "add", "arguments": '{"a": 1}'}
    answer = {
        "role": "assistant",
        "content": "Two.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert json.loads(text) == {"messages": [{"role": "user", "content": "One and one?"}, answer]}
    made = imported(ann, "openai", text + text)
    assert [entry["title"] for entry in made["data"]] == ["One and one?"] * 2
    assert exported(ann, made["data"][0]["id"], "jsonl") == text


def test_openai_jsonl_says_which_call_a_result_answers(ann: Page) -> None:
    """A result had no `tool_call_id`: OpenAI takes no such message, and an import here knew its call no more."""
    ann.open("a")
    ann.ask("a", "1", "Weather?")
    calls = [{"id": "c1", "name": "look", "arguments": "{}"}, {"id": None, "name": "look", "arguments": "{}"}]
    answer = {"choices": [{"content": "", "reasoning": "", "calls": calls}], "shown": 0}
    ann("PUT", "conversations/a/turns/2", {"parent": "1", "role": "assistant", "state": "ended", "content": answer})
    for turn, parent, call in (("3", "2", "c1"), ("4", "3", "call-1")):
        result = {"parent": parent, "role": "tool", "state": "ended", "content": "Sun.", "tool_call_id": call}
        assert ann("PUT", f"conversations/a/turns/{turn}", result)[0] == 200
    ann("PATCH", "conversations/a", {"head": "4"})
    text = exported(ann, "a", "jsonl")
    messages = json.loads(text)["messages"]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "call-1"]
    assert [(message["role"], message["tool_call_id"]) for message in messages[2:]] == [
        ("tool", "c1"),
        ("tool", "call-1"),
    ]
    made = imported(ann, "openai", text)
    assert exported(ann, made["data"][0]["id"], "jsonl") == text


def test_what_an_import_does_not_know_is_listed(ann: Page) -> None:
    line = {"weight": 1, "messages": [{"role": "user", "content": "x", "name": "Ann"}]}
    assert imported(ann, "openai", json.dumps(line))["unknown"] == ["line 1.weight", "line 1: messages.0.name"]
    plain = {
        "object": "lightcone.conversation",
        "colour": 1,
        "turns": [{"id": "1", "role": "user", "state": "ended", "x": 1}],
    }
    assert imported(ann, "lightcone", json.dumps(plain))["unknown"] == ["conversation.colour", "turns.0.x"]


def node(parent: str | None, role: str, *parts: Any, **metadata: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    return {"parent": parent, "message": {"author": {"role": role}, "content": content, "metadata": metadata}}


def test_a_chatgpt_export_comes_in_with_its_branches(ann: Page) -> None:
    """Nodes without a text are passed over, and what follows them follows the text before."""
    mapping = {
        "root": {"parent": None, "message": None},
        "hidden": node("root", "system", ""),
        "q": node("hidden", "user", "One and one?"),
        "a1": node("q", "assistant", "Two.", model_slug="gpt-x"),
        "a2": node("q", "assistant", "2"),
    }
    chat = {"title": "Sums", "mapping": mapping, "current_node": "a1"}
    made = imported(ann, "chatgpt", json.dumps([chat, chat | {"current_node": "a2"}]))
    assert made["unknown"] == []
    first, second = (ann.read(entry["id"]) for entry in made["data"])
    assert [(turn["role"], turn.get("model")) for turn in first["turns"]] == [
        ("user", None),
        ("assistant", "gpt-x"),
        ("assistant", None),
    ]
    assert [turn["parent"] for turn in first["turns"][1:]] == [first["turns"][0]["id"]] * 2
    assert exported(ann, first["id"], "markdown").endswith("## Assistant\n\nTwo.\n")
    assert exported(ann, second["id"], "markdown").endswith("## Assistant\n\n2\n")


def test_what_a_chatgpt_export_has_beside_texts_is_listed(ann: Page) -> None:
    image = {"content_type": "image_asset_pointer"}
    thoughts = {"author": {"role": "assistant"}, "content": {"content_type": "thoughts"}}
    mapping = {
        "q": node(None, "user", image, "What is this?", attachments=[{}]),
        "t": {"parent": "q", "message": thoughts},
        "a": node("t", "assistant", "A cat."),
    }
    made = imported(ann, "chatgpt", json.dumps([{"title": "Cat", "mapping": mapping, "current_node": "a"}]))
    assert made["unknown"] == [
        f"conversations.0.{name}" for name in ("part image_asset_pointer", "attachments", "content_type thoughts")
    ]
    assert ann.read(made["data"][0]["id"])["num_turns"] == 2


@pytest.mark.parametrize("text", ["{}", "[1]", "[]", '[], "x": 1', "nothing"])
def test_what_is_no_chatgpt_export_is_refused(ann: Page, text: str) -> None:
    assert ann("POST", "import", {"format": "chatgpt", "text": text})[0] == 400


@pytest.mark.parametrize("place", ["server", "project"])
def test_no_link_is_made_or_shown_where_sharing_is_off(ann: Page, chat: str, settings: Any, place: str) -> None:
    token = ann("POST", f"conversations/{chat}/links", {})[1]["token"]
    settings.LIGHTCONE_CHAT_SHARING = place != "server"
    Project.objects.update(may_share=place != "project")
    status, answer = ann("POST", f"conversations/{chat}/links", {})
    assert (status, answer["error"]["code"]) == (403, "permission_denied")
    assert Page()("GET", f"shared/{token}")[0] == 404
    assert Page().client.get(f"/shared/{token}").status_code == 404


def test_links_end_with_the_playground_of_their_maker(ann: Page, chat: str) -> None:
    """The links of somebody who had left a project that forbids them worked again."""
    token = ann("POST", f"conversations/{chat}/links", {})[1]["token"]
    Project.objects.update(may_share=False)
    Membership.objects.all().delete()
    Project.objects.create(org=Org.objects.create(name="Other"), name="Open to links")
    Project.objects.filter(may_share=False).delete()
    assert Page()("GET", f"shared/{token}")[0] == 404


def test_the_page_of_a_link_shows_its_texts_and_is_not_indexed(ann: Page, chat: str) -> None:
    token = ann("POST", f"conversations/{chat}/links", {})[1]["token"]
    shown = Page().client.get(f"/shared/{token}")
    assert shown.headers["X-Robots-Tag"] == "noindex"
    assert shown.headers["Referrer-Policy"] == "no-referrer"
    text = shown.content.decode()
    assert "One and one?" in text
    assert "Two." in text
    assert "Two and two?" not in text


def _ours(*turns: dict[str, Any]) -> str:
    return json.dumps({"object": "lightcone.conversation", "turns": turns})


def _turn(name: str, parent: str) -> dict[str, Any]:
    return {"id": name, "parent": parent, "role": "user", "state": "ended"}


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("lightcone", "{}", "lightcone.conversation"),
        ("lightcone", "x", "not valid JSON"),
        ("lightcone", _ours(_turn("1", "2"), _turn("2", "1")), "turns.0 must have"),
        ("lightcone", _ours(_turn("1", "1")), "turns.0 must have"),
        ("lightcone", _ours(_turn("1", ""), _turn("1", "")), "turns.1 must have"),
        ("lightcone", _ours(_turn("a b", "")), "turns.0.id"),
        ("lightcone", '{"object": "lightcone.conversation", "turns": {}}', "turns must be an array"),
        ("lightcone", '{"object": "lightcone.conversation", "turns": [], "title": "' + "x" * 300 + '"}', "title"),
        ("openai", '{"messages": [{"role": "user", "content": "x"}]}\n{"messages": 5}', "line 2"),
        ("openai", '{"messages": [{"role": "king", "content": "x"}]}', "line 1: messages.0.role"),
        ("openai", "\n \n", "text must not be empty"),
        ("openai", '{"messages": []}\n' * 101, "1 to 100 lines"),
        ("csv", "a", "format"),
    ],
)
def test_a_bad_file_is_refused_as_a_whole(ann: Page, name: str, text: str, part: str) -> None:
    status, answer = ann("POST", "import", {"format": name, "text": text})
    assert status == 400
    assert part in answer["error"]["message"]
    assert not Conversation.objects.exists()


def test_the_places_of_a_part_are_those_of_its_file(ann: Page) -> None:
    """A page sends a large file in parts, in which each began with line 1 again."""
    line = {"weight": 1, "messages": [{"role": "user", "content": "x"}]}
    part = {"format": "openai", "first": 101, "text": f"{json.dumps(line)}\n\n{json.dumps(line)}"}
    assert ann("POST", "import", part)[1]["unknown"] == ["line 101.weight", "line 103.weight"]
    chat = {"title": "Cat", "mapping": {"q": node(None, "user", {"content_type": "image"}, "What is this?")}}
    part = {"format": "chatgpt", "first": 101, "text": json.dumps([chat])}
    assert ann("POST", "import", part)[1]["unknown"] == ["conversations.100.part image"]
    status, refused = ann("POST", "import", {"format": "lightcone", "first": 1, "text": _ours(_turn("1", ""))})
    assert (status, refused["error"]["param"]) == (400, "first")


def test_a_line_ends_where_a_line_of_json_ends(ann: Page) -> None:
    """U+2028 in a text, which JSON writes as it is, was taken for the end of its line."""
    line = {"messages": [{"role": "user", "content": "one\u2028two\x85three"}]}
    made = imported(ann, "openai", json.dumps(line, ensure_ascii=False) + "\r\n")
    assert json.loads(exported(ann, made["data"][0]["id"], "jsonl")) == line


def test_a_link_shows_a_frozen_copy_without_parameters_to_anybody(ann: Page, chat: str) -> None:
    status, link = ann("POST", f"conversations/{chat}/links", {})
    ann.ask(chat, "4", "private", parent="2")
    reader = Page()
    response = reader.client.get(f"/playground/api/shared/{link['token']}")
    assert response.json() == {
        "title": "Sums",
        "turns": [{"role": "user", "text": "One and one?"}, {"role": "assistant", "text": "Two."}],
        "shared_at": link["created_at"],
    }
    assert response.headers["X-Robots-Tag"] == "noindex"
    assert "no-store" in response.headers["Cache-Control"]
    assert link["token"] not in ShareLink.objects.get().digest
    assert reader("POST", f"shared/{link['token']}")[0] == 405


def test_a_revoked_expired_or_deleted_link_shows_nothing(ann: Page, chat: str) -> None:
    before = ChatSpace.objects.get().num_bytes
    _, revoked = ann("POST", f"conversations/{chat}/links", {})
    _, expired = ann("POST", f"conversations/{chat}/links", {"expires_in_s": 60})
    _, kept = ann("POST", f"conversations/{chat}/links", {})
    assert ann("DELETE", f"conversations/{chat}/links/{revoked['id']}")[0] == 200
    ShareLink.objects.filter(pk=expired["id"]).update(expires_at=timezone.now() - timedelta(seconds=1))
    read = Page()
    assert [read("GET", f"shared/{link['token']}")[0] for link in (revoked, expired, kept)] == [404, 404, 200]
    assert [link["id"] for link in ann("GET", f"conversations/{chat}/links")[1]["data"]] == [kept["id"], expired["id"]]
    for link in (expired, kept):
        ann("DELETE", f"conversations/{chat}/links/{link['id']}")
    assert ChatSpace.objects.get().num_bytes == before == Conversation.objects.get().num_bytes
    _, last = ann("POST", f"conversations/{chat}/links", {})
    ann("DELETE", f"conversations/{chat}")
    assert read("GET", f"shared/{last['token']}")[1]["error"]["message"].startswith("There is no such link")


def test_links_are_bounded(ann: Page, chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MAX_LINKS", 0)
    assert ann("POST", f"conversations/{chat}/links", {})[0] == 429
    assert ann("POST", f"conversations/{chat}/links", {"expires_in_s": 1})[1]["error"]["param"] == "expires_in_s"
