"""The playground's socket on a served Lightcone, as a page opens it: sign in over HTTP, then talk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

ANSWER_TIMEOUT_S = 60.0
ENDS = ("completed", "error")
HELLO = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 8}
LONG = {"messages": [{"role": "user", "content": "Tell a very long story."}], "max_tokens": 1500, "ignore_eos": True}


@pytest.fixture(scope="module")
def session(lightcone: ServedLightcone) -> str:
    """Return the cookie of a signed-in administrator."""
    with httpx.Client(base_url=lightcone.base_url) as browser:
        browser.get("/sign-in").raise_for_status()
        form = {
            "username": lightcone.admin_user,
            "password": lightcone.admin_password,
            "csrfmiddlewaretoken": browser.cookies["lightcone_csrf"],
        }
        answer = browser.post("/sign-in", data=form, headers={"Origin": lightcone.base_url})
        assert (answer.status_code, answer.headers["location"]) == (302, "/")
        return browser.cookies["lightcone_session"]


@contextmanager
def page(lightcone: ServedLightcone, session: str = "", origin: str | None = None) -> Iterator[ClientConnection]:
    url = lightcone.base_url.replace("http:", "ws:") + "/ws/playground"
    headers = {"Cookie": f"lightcone_session={session}"} if session else {}
    with connect(url, origin=origin or lightcone.base_url, additional_headers=headers, proxy=None) as socket:  # type: ignore[arg-type]  # a plain string will do
        yield socket


def receive(socket: ClientConnection) -> dict[str, Any]:
    return json.loads(socket.recv(ANSWER_TIMEOUT_S))


def start(socket: ClientConnection, name: str, request: dict[str, Any]) -> None:
    socket.send(json.dumps({"type": "start", "id": name, "request": request}))


def rest(socket: ClientConnection) -> list[dict[str, Any]]:
    """Return messages up to the end of a run."""
    messages = [receive(socket)]
    while messages[-1]["type"] not in ENDS:
        messages.append(receive(socket))
    return [message for message in messages if message["type"] in ("delta", *ENDS)]


def test_a_run_streams_and_ends_with_its_counters(lightcone: ServedLightcone, session: str) -> None:
    with page(lightcone, session) as socket:
        start(socket, "one", HELLO)
        *deltas, end = rest(socket)
    assert "".join(message["text"] for message in deltas)
    assert (end["type"], end["id"], end["outcome"]) == ("completed", "one", "finished")
    assert 0 < end["usage"]["completion_tokens"] <= 8
    assert end["timings"]["total_s"] >= end["timings"]["first_token_s"] > 0


def test_stop_ends_one_run_of_two(lightcone: ServedLightcone, session: str) -> None:
    with page(lightcone, session) as socket:
        start(socket, "long", LONG)
        assert receive(socket)["id"] == "long"
        start(socket, "short", HELLO)
        socket.send(json.dumps({"type": "stop", "id": "long"}))
        ends: dict[str, dict[str, Any]] = {}
        while len(ends) < 2:
            message = receive(socket)
            if message["type"] in ENDS:
                ends[message["id"]] = message
    assert (ends["long"]["type"], ends["long"]["outcome"]) == ("completed", "stopped")
    assert ends["long"]["usage"]["completion_tokens"] < 1500
    assert ends["short"]["outcome"] == "finished"


def test_a_bad_message_gets_an_error_and_the_socket_stays_open(lightcone: ServedLightcone, session: str) -> None:
    with page(lightcone, session) as socket:
        socket.send("{")
        assert receive(socket)["error"]["code"] == "invalid_json"
        start(socket, "a", {**HELLO, "temperature": 9})
        answer = receive(socket)
        assert (answer["type"], answer["id"], answer["error"]["param"]) == ("error", "a", "temperature")
        start(socket, "a", HELLO)
        assert rest(socket)[-1]["type"] == "completed"


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_is_refused(lightcone: ServedLightcone, session: str, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused, page(lightcone, session, origin):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("session_key", ["", "0" * 32])
def test_sockets_without_a_sign_in_are_closed_with_4401(lightcone: ServedLightcone, session_key: str) -> None:
    with page(lightcone, session_key) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(ANSWER_TIMEOUT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
