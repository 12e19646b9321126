"""Files that a chat keeps are put into the requests of its page, and count until these are answered."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import get_user_model

from chat.api.answering import images
from chat.batches.attached import room
from chat.conversations.files import file_put
from tests.chat.api.conftest import Scripted
from tests.chat.playground.conftest import messages_until_end, signed_in

pytestmark = pytest.mark.django_db(transaction=True)

PNG, PDF = b"\x89PNG\r\n\x1a\n" + b"x" * 92, b"%PDF-1.7\n"


@pytest.fixture(autouse=True)
def _sees(monkeypatch: pytest.MonkeyPatch) -> None:
    async def modalities(model: Any) -> tuple[str, ...]:
        return ("image",)

    monkeypatch.setattr(images, "modalities_live", modalities)


@database_sync_to_async
def kept(content: bytes, name: str = "ada") -> str:
    return str(file_put(user_id=get_user_model().objects.get(username=name).pk, content=content).public_id)


def request_of(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}]}


def image(file_id: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"attachment:{file_id}"}}


async def start(page: WebsocketCommunicator, *parts: dict[str, Any]) -> dict[str, Any]:
    await page.send_json_to({"type": "start", "id": "a", "request": request_of(*parts)})
    return (await messages_until_end(page))[-1]


async def test_an_image_and_a_document_are_sent_by_name(page: WebsocketCommunicator, service: Scripted) -> None:
    document = {"type": "file", "file": {"file_data": f"attachment:{await kept(PDF)}", "filename": "a.pdf"}}
    end = await start(page, image(await kept(PNG)), document)
    assert end["type"] == "completed", end
    _, picture, file = service.requests[0].messages[0]["content"]
    assert picture["data"] == base64.b64encode(PNG).decode()
    assert file["file"]["filename"] == "a.pdf"
    assert base64.b64decode(file["file"]["file_data"].partition(",")[2]) == PDF
    assert room.num_bytes == 0


async def test_a_file_that_is_gone_or_of_another_is_named_by_its_message(
    page: WebsocketCommunicator, service: Scripted
) -> None:
    await database_sync_to_async(signed_in)("bob")
    for file_id in ("0" * 32, await kept(PNG, "bob")):
        end = await start(page, image(file_id))
        assert (end["type"], end["error"]["param"]) == ("error", "messages.0.content")
        assert "not there any more" in end["error"]["message"]
    assert service.requests == []
    assert room.num_bytes == 0


async def test_files_beyond_a_request_are_refused_before_they_are_read(
    page: WebsocketCommunicator, service: Scripted, settings: Any
) -> None:
    settings.LIGHTCONE_HTTP_LIMITS = replace(settings.LIGHTCONE_HTTP_LIMITS, max_body_bytes=150)
    file_id = await kept(PNG)
    assert (await start(page, image(file_id)))["type"] == "completed"
    end = await start(page, image(file_id), image(file_id))
    assert (end["type"], end["error"]["code"]) == ("error", "request_too_large")
    assert "begin a new chat" in end["error"]["message"]
