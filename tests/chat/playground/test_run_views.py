"""Runs of the page over HTTP: the socket's messages, numbered, for the same users alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.test import AsyncClient

from chat.models import Project
from chat.playground import run_views
from engine.api import EngineUnavailable, ErrorCode
from tests.chat.api.conftest import HELLO, Scripted, ScriptedReader
from tests.chat.playground.conftest import HELLO_BODY, messages_until_end, socket
from tests.people import member

pytestmark = pytest.mark.django_db(transaction=True)

RUNS = "/playground/api/runs"


class Browser:
    """A page without a socket."""

    def __init__(self, *, checks_csrf: bool = False) -> None:
        self.client = AsyncClient(enforce_csrf_checks=checks_csrf)

    async def start(self, name: Any = "a", request: Any = HELLO_BODY) -> tuple[int, Any]:
        answer = await self.client.post(RUNS, {"id": name, "request": request}, content_type="application/json")
        return answer.status_code, answer.json()

    async def events(self, name: str = "a", query: str = "", **headers: str) -> list[tuple[int | None, Any]]:
        """Return (number, message) of each frame."""
        answer = await self.client.get(f"{RUNS}/{name}/events{query}", headers=headers)
        assert answer.headers["Content-Type"].startswith("text/event-stream"), answer.content
        return read_frames("".join([piece.decode() async for piece in answer]))


def read_frames(text: str) -> list[tuple[int | None, Any]]:
    found = []
    for frame in text.split("\n\n")[:-1]:
        lines = [line for line in frame.split("\n") if not line.startswith(":")]
        number = int(lines[0].removeprefix("id: ")) if lines[0].startswith("id: ") else None
        found.append((number, json.loads(lines[-1].removeprefix("data: "))))
    return found


@pytest.fixture
async def browser(service: Scripted, kept: list[str], ada: Any) -> Browser:
    browser = Browser()
    user = await database_sync_to_async(get_user_model().objects.get)(username="ada")
    await browser.client.aforce_login(user)
    return browser


async def test_a_run_sends_the_messages_of_the_socket_with_numbers(
    browser: Browser, service: Scripted, ada: Any
) -> None:
    assert await browser.start() == (202, {"id": "a"})
    trace = service.traces[0]
    assert (trace.dialect, trace.route, trace.user_label) == ("playground", RUNS, "ada")
    frames = await browser.events()
    assert [number for number, _ in frames] == [0, 1, 2, 3]
    again = await socket(ada)
    await again.connect()
    await again.send_json_to({"type": "attach", "id": "a"})
    assert [message for _, message in frames[1:]] == await messages_until_end(again)
    assert frames[0][1]["type"] == "admitted"
    await again.disconnect()


@pytest.mark.parametrize(
    ("query", "headers"), [("?starting_after=1", {}), ("?starting_after=0", {"Last-Event-ID": "1"})]
)
async def test_a_page_that_is_back_gets_the_rest(browser: Browser, query: str, headers: dict[str, str]) -> None:
    await browser.start()
    frames = await browser.events(query=query, **headers)
    assert [(number, message["type"]) for number, message in frames] == [(2, "delta"), (3, "completed")]


async def test_an_error_ends_the_stream_without_a_number(
    browser: Browser, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may concern this reader alone."""
    await browser.start()
    script = [*HELLO[:2], EngineUnavailable(ErrorCode.WORKER_LOST, "gone")]
    monkeypatch.setattr(ScriptedReader, "__init__", scripted_with(script))
    frames = await browser.events()
    assert [number for number, _ in frames] == [0, 1, None]
    assert frames[-1][1]["error"] == {"message": "gone", "code": "worker_lost", "param": None}
    assert frames[-1][1]["id"] == "a"


def scripted_with(script: list[Any]) -> Any:
    make = ScriptedReader.__init__
    return lambda reader, _, headers: make(reader, list(script), headers)


async def test_a_stop_ends_the_run(browser: Browser, service: Scripted, kept: list[str]) -> None:
    await browser.start()
    answer = await browser.client.post(f"{RUNS}/a/stop")
    assert (answer.status_code, answer.json()) == (202, {"id": "a"})
    assert kept == [service.detach_policies[0].public_id]  # type: ignore[union-attr]  # the page always has a policy
    assert (await browser.client.post(f"{RUNS}/b/stop")).status_code == 404


@pytest.mark.parametrize(
    ("name", "request_", "status", "code", "param"),
    [
        ("a/b", HELLO_BODY, 400, "invalid_value", "id"),
        (None, HELLO_BODY, 400, "invalid_value", "id"),
        ("a", 5, 400, "invalid_type", "request"),
        ("a", {}, 400, "missing_required_parameter", "messages"),
        ("a", HELLO_BODY | {"temperature": 9}, 400, "invalid_value", "temperature"),
        ("a", HELLO_BODY | {"nonsense": 1}, 400, "unsupported_parameter", "nonsense"),
    ],
)
async def test_a_bad_start_is_refused_by_the_field(
    browser: Browser, service: Scripted, name: Any, request_: Any, status: int, code: str, param: str
) -> None:
    answered, body = await browser.start(name, request_)
    assert (answered, body["error"]["code"], body["error"]["param"]) == (status, code, param)
    assert service.requests == []


async def test_what_is_gone_or_belongs_to_others_cannot_be_read(
    browser: Browser, service: Scripted, kept: list[str], project: Project
) -> None:
    await browser.start()
    bob = Browser()
    await bob.client.aforce_login(await database_sync_to_async(member)("bob"))
    for client, name in ((bob.client, "a"), (browser.client, "b")):
        for answer in (await client.get(f"{RUNS}/{name}/events"), await client.post(f"{RUNS}/{name}/stop")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_resumable")
    assert kept == []


async def test_access_is_that_of_the_page(service: Scripted, ada: Any, project: Project) -> None:
    nobody = Browser()
    assert (await nobody.start())[0] == 401
    user = await database_sync_to_async(get_user_model().objects.get)(username="ada")
    forged = Browser(checks_csrf=True)
    await forged.client.aforce_login(user)
    assert (await forged.start())[0] == 403
    await database_sync_to_async(user.memberships.all().delete)()
    guest = Browser()
    await guest.client.aforce_login(user)
    assert (await guest.start())[0] == 403
    assert service.requests == []


async def test_a_new_run_waits_for_its_page_before_it_counts_as_left(
    browser: Browser, service: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a detach grace it would end before its page could read it."""
    await browser.start()
    assert service.readers[0].num_left == 0
    monkeypatch.setattr(run_views, "PICK_UP_S", 0.0)
    await browser.start("b")
    await browser.events()
    assert service.readers[1].num_left == 1
