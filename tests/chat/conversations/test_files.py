"""Files of messages are kept once for their account, count against its quota, and go with what names them."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chat.conversations import exports, files, transfer
from chat.conversations.models import ChatFile, ChatSpace, Conversation
from chat.tasks import chats_retention
from tests.chat.conversations.conftest import API, Page

PNG, WAV, PDF = b"\x89PNG\r\n\x1a\n" + b"x" * 92, b"RIFF\0\0\0\0WAVEfmt ", b"%PDF-1.7\n"


def sent(page: Page, content: bytes = PNG, **options: Any) -> tuple[int, Any]:
    response = page.client.post(f"{API}files", content, content_type="application/octet-stream", **options)
    return response.status_code, response.json()


def kept(page: Page, content: bytes = PNG) -> str:
    status, made = sent(page, content)
    assert status == 200, made
    return str(made["id"])


def image(file_id: str, name: str = "cat.png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"attachment:{file_id}"}, "attachment": name}


def asked(page: Page, chat: str, content: Any, turn: str = "1") -> None:
    page.open(chat)
    body = {"role": "user", "state": "ended", "content": content}
    assert page("PUT", f"conversations/{chat}/turns/{turn}", body)[0] == 200


def space(page: Page) -> int:
    found = ChatSpace.objects.filter(user=page.user).first()
    return found.num_bytes if found else 0


def days_later() -> None:
    """Let two days pass for all files and deleted chats, and the daily clean-up run."""
    before = timezone.now() - timedelta(days=2)
    ChatFile.objects.update(sent_at=before)
    Conversation.objects.exclude(deleted_at=None).update(deleted_at=before)
    chats_retention()


@pytest.mark.parametrize(
    ("content", "media_type", "is_shown"),
    [(PNG, "image/png", True), (WAV, "audio/wav", True), (PDF, "application/octet-stream", False)],
)
def test_a_file_comes_back_as_what_its_first_bytes_say(
    ann: Page, content: bytes, media_type: str, is_shown: bool
) -> None:
    status, made = sent(ann, content)
    assert (status, made["media_type"], made["num_bytes"]) == (200, media_type, len(content))
    found = ann.client.get(f"{API}files/{made['id']}")
    assert (found.content, found.headers["Content-Type"]) == (content, media_type)
    assert ("Content-Disposition" not in found.headers) == is_shown
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in found.headers["Cache-Control"]


@pytest.mark.parametrize(
    ("asked", "status", "part", "place"),
    [
        ("bytes=0-1", 206, slice(0, 2), "bytes 0-1/100"),
        ("bytes=90-", 206, slice(90, None), "bytes 90-99/100"),
        ("bytes=90-500", 206, slice(90, None), "bytes 90-99/100"),
        ("bytes=100-", 200, slice(None), None),
        ("bytes=5-2", 200, slice(None), None),
        ("bytes=-5", 200, slice(None), None),
        ("bytes=0-1,5-6", 200, slice(None), None),
        ("lines=0-1", 200, slice(None), None),
    ],
)
def test_players_get_the_part_that_they_ask_for(
    ann: Page, asked: str, status: int, part: slice, place: str | None
) -> None:
    found = ann.client.get(f"{API}files/{kept(ann)}", HTTP_RANGE=asked)
    assert (found.status_code, found.content, found.headers.get("Content-Range")) == (status, PNG[part], place)


def test_a_page_of_html_is_never_shown(ann: Page) -> None:
    file_id = kept(ann, b"<html><script>alert(1)</script>")
    found = ann.client.get(f"{API}files/{file_id}")
    assert found.headers["Content-Type"] == "application/octet-stream"
    assert found.headers["Content-Disposition"] == "attachment"


def test_the_same_file_is_kept_once_and_counts_once(ann: Page, bob: Page) -> None:
    before = space(ann)
    assert kept(ann) == kept(ann)
    assert space(ann) == before + len(PNG)
    assert kept(bob) != kept(ann)


def test_nobody_else_reads_a_file(ann: Page, bob: Page) -> None:
    file_id = kept(ann)
    assert bob("GET", f"files/{file_id}")[0] == 404
    assert ann("GET", "files/0")[0] == 404


def test_empty_large_and_unaffordable_files_are_refused(ann: Page, settings: Any) -> None:
    status, refused = sent(ann, b"")
    assert (status, refused["error"]["param"]) == (400, "file")
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = len(PNG) - 1
    assert sent(ann)[0] == 429
    large = b"x" * (settings.LIGHTCONE_LIMITS.max_file_bytes + 1)
    status, refused = sent(ann, large)
    assert (status, refused["error"]["code"]) == (413, "request_too_large")
    assert "LIGHTCONE_MAX_FILE_BYTES" in refused["error"]["message"]
    assert not ChatFile.objects.exists()


def test_a_file_stays_while_a_chat_names_it(ann: Page) -> None:
    file_id, other = kept(ann), kept(ann, WAV)
    asked(ann, "a", [image(file_id), {"type": "text", "text": "What is it?"}])
    asked(ann, "b", [image(file_id)])
    days_later()
    assert list(ChatFile.objects.values_list("public_id", flat=True)) == [file_id]
    ann("DELETE", "conversations/a")
    days_later()
    assert ChatFile.objects.count() == 1
    ann("DELETE", "conversations/b")
    days_later()
    assert not ChatFile.objects.exists()
    assert space(ann) == 0
    assert ann("GET", f"files/{other}")[0] == 404


@pytest.mark.parametrize("path", ["draft", "conversations/a/draft"])
def test_a_file_of_a_draft_stays(ann: Page, path: str) -> None:
    ann.open("a")
    file_id = kept(ann)
    ann("PUT", path, {"text": "", "files": [{"name": "cat.png", "url": f"attachment:{file_id}"}]})
    days_later()
    assert ChatFile.objects.count() == 1
    ann("DELETE", path)
    days_later()
    assert not ChatFile.objects.exists()


def test_a_file_that_was_just_sent_stays(ann: Page) -> None:
    kept(ann)
    chats_retention()
    assert ChatFile.objects.count() == 1


def test_the_files_of_others_are_not_held_by_naming_them(ann: Page, bob: Page) -> None:
    asked(bob, "b", [image(kept(ann))])
    days_later()
    assert not ChatFile.objects.exists()


def test_a_turn_may_name_what_is_not_there(ann: Page) -> None:
    """Such as one of a file that was written elsewhere: the page says that it is gone."""
    asked(ann, "a", [image("0" * 32), {"type": "image_url", "image_url": {"url": "attachment:"}}, {"type": []}, 5])
    assert ann.read("a")["turns"][0]["content"][0] == image("0" * 32)


@pytest.mark.parametrize("name", ["\0", "a\0", "../a", "A", "a" * 33, "a\n", ""])
def test_what_is_no_id_names_no_file(name: str) -> None:
    """PostgreSQL takes no NUL, also in a condition."""
    assert files.files_in([image(name), image("a1")]) == ["a1"]


def test_an_image_alone_gives_the_chat_its_title(ann: Page) -> None:
    asked(ann, "a", [image(kept(ann))])
    assert ann.read("a")["title"] == "cat.png"


def test_sending_needs_the_token_of_the_page(ann: Page) -> None:
    page = Page(ann.user, enforce_csrf_checks=True)
    assert sent(page)[0] == 403


def exported(page: Page, format_name: str) -> str:
    return str(page.client.get(f"{API}conversations/a/export?format={format_name}").content.decode())


def test_exports_have_the_files_and_an_import_brings_them_back(ann: Page, bob: Page) -> None:
    named = [image(kept(ann)), {"type": "text", "text": "What is it?"}]
    asked(ann, "a", named)
    whole = {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}
    content = json.loads(exported(ann, "json"))["turns"][0]["content"]
    assert content == [image("") | {"image_url": whole}, named[1]]
    message = json.loads(exported(ann, "jsonl"))["messages"][0]
    assert message["content"] == [{"type": "image_url", "image_url": whole}, named[1]]
    assert exported(ann, "markdown") == "# What is it?\n\n## User\n\n*cat.png*\n\nWhat is it?\n"
    status, made = bob("POST", "import", {"format": "lightcone", "text": exported(ann, "json")})
    assert status == 200
    assert bob.read(made["data"][0]["id"])["turns"][0]["content"] == content


def test_sound_is_plain_in_a_request_and_a_file_that_is_gone_keeps_its_name(ann: Page) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": f"attachment:{kept(ann, WAV)}", "format": "wav"}}
    asked(ann, "a", [sound, image("0" * 32)])
    played, gone = json.loads(exported(ann, "jsonl"))["messages"][0]["content"]
    assert base64.b64decode(played["input_audio"]["data"]) == WAV
    assert gone["image_url"]["url"] == f"attachment:{'0' * 32}"


def test_exports_of_several_count_their_files(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(ann, "a", [image(kept(ann))])
    monkeypatch.setattr(exports, "MAX_EXPORTED_BYTES", ann.read("a")["num_bytes"])
    status, refused = ann("POST", "export", {"format": "json", "ids": ["a"]})
    assert (status, refused["error"]["code"]) == (413, "request_too_large")


@pytest.fixture
def _three_times(ann: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that names its one file three times, where an export has room for two."""
    named = image(kept(ann, PNG * 100))
    asked(ann, "a", [named, named])
    asked(ann, "a", [named], turn="2")
    for module in (exports, transfer):
        monkeypatch.setattr(module, "MAX_EXPORTED_BYTES", 300 * len(PNG))


@pytest.mark.usefixtures("_three_times")
def test_an_export_has_room_for_each_place_that_names_a_file(ann: Page) -> None:
    """A turn of a mebibyte could name a large file thousands of times, and its export would fill the memory."""
    status, refused = ann("GET", "conversations/a/export?format=json")
    assert (status, refused["error"]["code"]) == (413, "request_too_large")
    assert "Markdown" in refused["error"]["message"]
    assert ann("GET", "conversations/a/export?format=markdown")[0] == 200
    assert ann("POST", "export", {"format": "json", "ids": ["a"]})[0] == 413


def test_an_export_reads_each_file_once(ann: Page) -> None:
    named = image(kept(ann))
    asked(ann, "a", [named, named, named])
    with CaptureQueriesContext(connection) as captured:
        assert exported(ann, "json").count("data:image/png;base64,") == 3
    assert sum('"content"' in query["sql"] for query in captured) == 1


def test_a_link_says_that_there_was_an_image(ann: Page) -> None:
    asked(ann, "a", [image(kept(ann)), {"type": "text", "text": "What is it?"}])
    asked(ann, "b", [image(kept(ann))])
    for chat, text in (("a", "What is it?"), ("b", "")):
        token = ann("POST", f"conversations/{chat}/links", {})[1]["token"]
        assert ann("GET", f"shared/{token}")[1]["turns"] == [{"role": "user", "text": text, "num_images": 1}]
        shown = ann.client.get(f"/shared/{token}").content.decode()
        assert "An image is not shown here." in shown
        assert "attachment:" not in shown
