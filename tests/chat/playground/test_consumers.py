"""The playground's socket without an engine: access, answers, and the end of runs with their page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import get_user_model
from django.test import Client

from chat.access.keys import Caller
from chat.api.answering import pipeline
from chat.api.request.schema import REQUEST_ID
from chat.api.server_contract import STOP, Stop
from chat.catalog import named_models
from chat.catalog.services import model_register, model_update
from chat.conversations.runs import run_public_id
from chat.models import Project
from chat.playground import consumers
from engine.api import (
    Admitted,
    Delta,
    EngineUnavailable,
    ErrorCode,
    Event,
    FinishReason,
    GenerationRequest,
    Outcome,
    Payload,
    Task,
    ToolCallDelta,
    Usage,
)
from lightcone_site.limits import HttpLimits
from tests.chat.api.conftest import ADMITTED, MODEL, Scripted, ScriptedReader, completed, delta, finished
from tests.chat.playground.conftest import HELLO_BODY, admission, messages_until_end, signed_in, socket

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_run_streams_its_text_and_ends_with_counters(page: WebsocketCommunicator, service: Scripted) -> None:
    await page.send_json_to(
        {"type": "start", "id": "a", "request": HELLO_BODY | {"max_tokens": 5, "metadata": {"try": "1"}}}
    )
    *deltas, end = await messages_until_end(page)
    assert "".join(message["text"] for message in deltas) == "Hello"
    assert (end["type"], end["id"], end["outcome"]) == ("completed", "a", "finished")
    assert end["choices"] == [{"finish_reason": "stop", "tokens": 2, "stop": None}]
    assert end["usage"] == asdict(Usage(prompt_tokens=3, cached_tokens=1, completion_tokens=2))
    assert service.requests[0].stop.max_tokens == 5
    assert (service.traces[0].dialect, service.traces[0].user_label, service.traces[0].user_agent) == (
        "playground",
        "ada",
        "test",
    )
    assert service.traces[0].metadata == {"try": "1"}
    assert service.readers[0].num_left == 1


async def test_reasoning_and_calls_are_sent_beside_the_text(page: WebsocketCommunicator, service: Scripted) -> None:
    call = ToolCallDelta(0, "call-1", "add", "{}")
    thought, said = Delta(0, (1,), reasoning="hm"), Delta(0, (2, 3), "See", tool_calls=(call,))
    service.script = [ADMITTED, thought, Delta(0, (4,)), said, finished(), completed()]
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    *deltas, end = await messages_until_end(page)
    assert deltas == [
        {"type": "delta", "id": "a", "choice": 0, "text": "", "reasoning": "hm"},
        {
            "type": "delta",
            "id": "a",
            "choice": 0,
            "text": "See",
            "tool_calls": [{"index": 0, "id": "call-1", "name": "add", "arguments": "{}"}],
        },
    ]
    assert end["choices"][0]["finish_reason"] == "stop"


async def test_every_choice_is_sent_and_counted(page: WebsocketCommunicator, service: Scripted) -> None:
    """Only the first choice was sent, though all were generated."""
    service.script = [
        ADMITTED,
        *(delta("b", choice=1), delta("a"), delta("bb", choice=1)),
        *(finished(1, FinishReason.LENGTH), finished(0), completed(output=3)),
    ]
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY | {"n": 2}})
    *deltas, end = await messages_until_end(page)
    assert [(message["choice"], message["text"]) for message in deltas] == [(1, "b"), (0, "a"), (1, "bb")]
    assert [(choice["finish_reason"], choice["tokens"]) for choice in end["choices"]] == [("stop", 1), ("length", 2)]


@pytest.mark.parametrize("name", ["nonsense_field", "return_prompt_text", "store", "user"])
async def test_a_field_without_effect_is_refused_by_name(
    page: WebsocketCommunicator, service: Scripted, name: str
) -> None:
    """Such a field was ignored silently."""
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY | {name: True}})
    error = (await page.receive_json_from())["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", name)
    assert name in error["message"]
    assert service.requests == []


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("[]", "invalid_json", None),
        ("{", "invalid_json", None),
        ('{"type": "start"}', "invalid_value", "id"),
        ('{"type": "start", "id": "a/b"}', "invalid_value", "id"),
        ('{"type": "sing", "id": "a"}', "invalid_value", "type"),
        ('{"type": "start", "id": "a", "request": 5}', "invalid_type", "request"),
        ('{"type": "start", "id": "a", "request": {}}', "missing_required_parameter", "messages"),
    ],
)
async def test_a_bad_message_gets_an_error_and_the_socket_stays_open(
    page: WebsocketCommunicator, message: str, code: str, param: str | None
) -> None:
    await page.send_to(text_data=message)
    answer = await page.receive_json_from()
    assert (answer["type"], answer["error"]["code"], answer["error"]["param"]) == ("error", code, param)
    await page.send_json_to({"type": "start", "id": "b", "request": HELLO_BODY})
    assert (await messages_until_end(page))[-1]["type"] == "completed"


async def test_a_message_of_too_many_bytes_closes_the_socket(page: WebsocketCommunicator, settings) -> None:
    settings.LIGHTCONE_HTTP_LIMITS = HttpLimits(max_ws_message_bytes=200)
    await page.send_json_to({"type": "stop", "id": "a" * 100})
    assert (await page.receive_json_from())["type"] == "error"
    await page.send_to(text_data='{"type": "stop", "id": "' + "\u00e9" * 100 + '"}')
    assert await page.receive_output() == {"type": "websocket.close", "code": 1009}


async def test_message_errors_follow_the_limits_as_in_the_api(page: WebsocketCommunicator, service: Scripted) -> None:
    bad = {"type": "start", "request": {"messages": [{"role": "user", "content": 5}]}}
    await page.send_json_to(bad | {"id": "a"})
    assert (await page.receive_json_from())["error"]["param"] == "messages.0.content"
    service.refusal = EngineUnavailable(ErrorCode.MODEL_LOADING, "loading")
    await page.send_json_to(bad | {"id": "b"})
    assert (await page.receive_json_from())["error"]["code"] == "model_loading"


async def test_a_refused_run_is_logged_like_a_refused_request(page: WebsocketCommunicator, service: Scripted) -> None:
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY | {"model": "unknown"}})
    assert (await page.receive_json_from())["error"]["code"] == "model_not_found"
    service.refusal = EngineUnavailable(ErrorCode.OVERLOADED, "busy")
    await page.send_json_to({"type": "start", "id": "b", "request": HELLO_BODY})
    assert (await page.receive_json_from())["error"]["message"] == "busy"
    assert [(record["status"], record["code"]) for record in service.rejected] == [
        (404, "model_not_found"),
        (503, "overloaded"),
    ]
    assert service.rejected[0]["trace"].model_asked == "unknown"


class WaitingReader(ScriptedReader):
    """A reader that sends one piece of text and waits for the stop, which may fail."""

    def __init__(self, *, can_stop: bool = True) -> None:
        super().__init__([], {})
        self.is_admitted = asyncio.Event()
        self.is_admitted.set()
        self.can_stop = can_stop
        self.is_stopped = asyncio.Event()
        self.sent = self._events()

    async def has_begun(self, timeout_s: float) -> bool:
        await self.is_admitted.wait()
        return True

    async def first(self, *, timeout_s: float | None = None) -> Admitted:
        await self.is_admitted.wait()
        self.position = 1
        return ADMITTED

    async def next(self, timeout_s: float) -> Event | None:
        return await anext(self.sent)

    async def _events(self) -> AsyncIterator[Event]:
        yield self._event(delta("word"))
        await self.is_stopped.wait()
        ends: list[Payload] = [finished(), completed(outcome=Outcome.STOPPED)]
        for payload in ends:
            yield self._event(payload)

    async def stop(self) -> None:
        if not self.can_stop:
            raise EngineUnavailable(ErrorCode.OVERLOADED, "Valkey is away")
        self.is_stopped.set()


async def start_waiting(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch, reader: WaitingReader, name: str = "a"
) -> None:
    async def start(**_: Any) -> WaitingReader:
        return reader

    monkeypatch.setattr(pipeline, "completion_start", start)
    await page.send_json_to({"type": "start", "id": name, "request": HELLO_BODY})
    assert (await admission(page))["id"] == name
    assert (await page.receive_json_from())["text"] == "word"


async def test_stop_ends_the_run_and_its_end_still_arrives(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start_waiting(page, monkeypatch, WaitingReader())
    await page.send_json_to({"type": "stop", "id": "unknown"})
    await page.send_json_to({"type": "stop", "id": "a"})
    end = await page.receive_json_from()
    assert (end["type"], end["outcome"]) == ("completed", "stopped")


async def test_a_stop_that_cannot_be_sent_does_not_end_the_socket(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error ended every run of the page."""
    reader = WaitingReader(can_stop=False)
    await start_waiting(page, monkeypatch, reader)
    await page.send_json_to({"type": "stop", "id": "a"})
    reader.is_stopped.set()
    assert (await page.receive_json_from())["type"] == "completed"


async def test_a_stop_reaches_a_run_during_its_admission(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise such a run continued for the grace period without a reader."""
    reader, is_starting, may_start = WaitingReader(), asyncio.Event(), asyncio.Event()

    async def start(**_: Any) -> WaitingReader:
        is_starting.set()
        await may_start.wait()
        return reader

    monkeypatch.setattr(pipeline, "completion_start", start)
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    await is_starting.wait()
    await page.send_json_to({"type": "stop", "id": "a"})
    await page.send_json_to({"type": "sing", "id": "b"})
    assert (await page.receive_json_from())["id"] == "b"
    may_start.set()
    assert (await messages_until_end(page))[-1]["outcome"] == "stopped"


async def test_a_stop_ends_the_writing_down_of_sound(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran on for minutes, and the answer was stopped as it began."""
    reader, is_heard = WaitingReader(), asyncio.Event()
    reader.is_admitted.clear()

    async def resolve(*, name: str | None = None, caller: Any = None) -> Any:
        return replace(MODEL, name="whisper") if name == "whisper" else replace(MODEL, transcriber="whisper")

    async def start(*, request: GenerationRequest, **_: Any) -> WaitingReader:
        assert request.task is Task.TRANSCRIBE
        is_heard.set()
        return reader

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(pipeline, "completion_start", start)
    sound = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
    request = {"messages": [{"role": "user", "content": [sound]}]}
    await page.send_json_to({"type": "start", "id": "a", "request": request})
    await is_heard.wait()
    await page.send_json_to({"type": "stop", "id": "a"})
    answer = await page.receive_json_from()
    assert (answer["type"], answer["id"], answer["error"]["message"]) == ("error", "a", consumers.STOPPED_MESSAGE)
    await page.send_json_to({"type": "sing", "id": "b"})
    assert (await page.receive_json_from())["id"] == "b"
    assert reader.num_left == 1


async def test_a_run_outlives_its_page_and_can_be_reread_from_the_start(
    page: WebsocketCommunicator, service: Scripted, kept: list[str], ada: Client, settings: Any
) -> None:
    """A reload in the middle of an answer ended the run."""
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    said = await messages_until_end(page)
    assert service.detach_policies[0].detach_grace_s == settings.LIGHTCONE_PLAYGROUND_DETACH_GRACE_S > 0
    again = await socket(ada)
    await again.connect()
    await again.send_json_to({"type": "attach", "id": "a"})
    assert await messages_until_end(again) == said
    assert len(service.requests) == 1
    await again.disconnect()


async def test_only_its_own_user_can_resume_or_stop_a_run(
    page: WebsocketCommunicator, service: Scripted, kept: list[str]
) -> None:
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    await messages_until_end(page)
    other = await socket(await database_sync_to_async(signed_in)("bob"))
    await other.connect()
    await other.send_json_to({"type": "stop", "id": "a"})
    await other.send_json_to({"type": "attach", "id": "a"})
    assert (await other.receive_json_from())["error"]["code"] == "not_resumable"
    assert kept == []
    await other.disconnect()


async def test_a_stop_ends_a_run_not_read_by_this_page(
    page: WebsocketCommunicator, service: Scripted, kept: list[str]
) -> None:
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    await messages_until_end(page)
    await page.send_json_to({"type": "stop", "id": "a"})
    await page.send_json_to({"type": "sing", "id": "b"})
    await page.receive_json_from()
    assert kept == [service.detach_policies[0].public_id]


def test_playground_run_ids_are_no_api_request_ids() -> None:
    """A key of the project must not reach a person's chat under `/v1/chat/completions/…/events`."""
    caller = staff_caller_of(5)
    assert re.fullmatch(REQUEST_ID, run_public_id(caller, "a")) is None
    assert run_public_id(caller, "a") != run_public_id(staff_caller_of(6), "a")


def staff_caller_of(user_id: int) -> Caller:
    return Caller(key_id=0, public_id="", org_id=1, project_id=1, tenant=f"1:user:{user_id}")


async def test_a_closed_page_leaves_its_runs(service: Scripted, ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    page = await socket(ada)
    await page.connect()
    reader = WaitingReader()
    await start_waiting(page, monkeypatch, reader)
    await page.disconnect()
    assert reader.num_left == 1


async def test_runs_of_a_page_are_limited_and_their_ids_unique(
    page: WebsocketCommunicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefgh":
        await start_waiting(page, monkeypatch, WaitingReader(), name)
    for name, param in (("a", "id"), ("i", None)):
        await page.send_json_to({"type": "start", "id": name, "request": HELLO_BODY})
        answer = await page.receive_json_from()
        assert (answer["type"], answer["error"]["param"]) == ("error", param)


@pytest.mark.parametrize("who", ["nobody", "guest"])
async def test_sockets_without_access_are_closed_with_4401(service: Scripted, project: Project, who: str) -> None:
    client = await database_sync_to_async(signed_in)("guest", may_chat=False) if who == "guest" else None
    page = await socket(client)
    assert (await page.connect())[0]
    assert (await page.receive_output())["code"] == consumers.SIGNED_OUT


async def test_an_open_socket_loses_its_rights_at_sign_out(
    page: WebsocketCommunicator, service: Scripted, ada: Client
) -> None:
    """The socket kept its first caller for ever."""
    await database_sync_to_async(ada.logout)()
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    assert (await page.receive_output())["code"] == consumers.SIGNED_OUT
    assert service.requests == []


@pytest.mark.parametrize(
    "origin", [b"http://evil.example", b"http://localhost:3000", b"null", b"", b"http://[", b"ftp://localhost:8000"]
)
async def test_pages_of_other_origins_are_refused(service: Scripted, ada: Client, origin: bytes) -> None:
    """Cookies ignore ports, so that a page of another program on this host sends ours."""
    assert not (await (await socket(ada, origin=origin)).connect())[0]


async def test_an_unknown_host_is_refused_even_as_its_own_origin(service: Scripted, ada: Client) -> None:
    """A foreign name may be bound to this address."""
    assert not (await (await socket(ada, origin=b"http://rebound.example", host=b"rebound.example")).connect())[0]


async def test_a_trusted_origin_is_accepted(service: Scripted, ada: Client, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["http://localhost:3000"]
    page = await socket(ada, origin=b"http://localhost:3000")
    assert (await page.connect())[0]
    await page.disconnect()


def test_the_page_is_served_to_users_with_the_playground_permission(project: Project) -> None:
    """Only staff could open the socket; other users got a page that reloaded for ever."""
    assert signed_in("grace").get("/").status_code == 200
    assert signed_in("guest", may_chat=False).get("/").status_code == 403
    assert Client().get("/").status_code == 302


def test_the_page_has_its_user_and_the_sampling_defaults(project: Project) -> None:
    model = model_register(name="tiny", path="/models/tiny")
    model.sampling_defaults = {"temperature": 0, "top_p": None, "top_k": 5}
    model_update(model=model)
    client = signed_in("grace")
    html = client.get("/").content.decode()
    page = json.loads(re.search(r'<script id="page-data" type="application/json">(.*?)</script>', html).group(1))
    assert page["user"] == get_user_model().objects.get(username="grace").pk
    [tiny] = page["models"]
    assert tiny["id"] == "tiny"
    assert {name: tiny["defaults"][name] for name in ("temperature", "top_p", "top_k")} == {
        "temperature": 0,
        "top_p": 1.0,
        "top_k": 5,
    }
    assert "top_k" in page["fields"]
    assert not {"return_prompt_text", "nonsense"} & set(page["fields"])


async def test_a_server_that_stops_lets_the_run_end_and_then_closes_the_socket(service: Scripted, ada: Client) -> None:
    """A stop cut the answers of open pages, and new runs were still started."""
    page = await socket(ada)
    stop = page.scope[STOP] = Stop()
    assert (await page.connect())[0]
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY})
    assert (await admission(page))["model"] == MODEL.name
    stop.closing.set()
    assert (await messages_until_end(page))[-1]["type"] in ("completed", "error")
    assert (await page.receive_output())["type"] == "websocket.close"
