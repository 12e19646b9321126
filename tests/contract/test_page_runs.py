"""Runs of the page on a served Lightcone: over HTTP and over the socket, they are the same."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

RUNS = "/playground/api/runs"
ASK = {"messages": [{"role": "user", "content": "Count to ten."}], "temperature": 0, "max_tokens": 24}
LONG = ASK | {"max_tokens": 1500, "ignore_eos": True}
ANSWER_TIMEOUT_S = 60.0


@contextmanager
def socket_of(lightcone: ServedLightcone, browser: httpx.Client) -> Iterator[ClientConnection]:
    url = lightcone.base_url.replace("http:", "ws:") + "/ws/playground"
    cookie = {"Cookie": f"lightcone_session={browser.cookies['lightcone_session']}"}
    with connect(url, origin=lightcone.base_url, additional_headers=cookie, proxy=None) as socket:  # type: ignore[arg-type]  # a plain string will do
        yield socket


def receive_all(socket: ClientConnection) -> list[dict[str, Any]]:
    messages = [json.loads(socket.recv(ANSWER_TIMEOUT_S))]
    while messages[-1]["type"] not in ("completed", "error"):
        messages.append(json.loads(socket.recv(ANSWER_TIMEOUT_S)))
    return messages


def start(browser: httpx.Client, request: dict[str, Any]) -> str:
    name = secrets.token_hex(12)
    answer = browser.post(RUNS, json={"id": name, "request": request})
    assert (answer.status_code, answer.json()) == (202, {"id": name})
    return name


def frames(browser: httpx.Client, name: str, query: str = "") -> Iterator[tuple[int | None, dict[str, Any]]]:
    with browser.stream("GET", f"{RUNS}/{name}/events{query}", timeout=ANSWER_TIMEOUT_S) as answer:
        assert answer.status_code == 200, answer.read()
        number = None
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif line.startswith("data: "):
                yield number, json.loads(line.removeprefix("data: "))
                number = None


def of_the_run(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] not in ("waiting", "resuming")]


def test_events_over_http_are_the_messages_of_the_socket(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    name = start(browser, ASK | {"logprobs": True, "top_logprobs": 3, "prompt_logprobs": 1, "seed": 5})
    numbered = [(number, message) for number, message in frames(browser, name) if number is not None]
    assert [number for number, _ in numbered] == list(range(len(numbered)))
    sent = [message for _, message in numbered]
    with socket_of(lightcone, browser) as socket:
        socket.send(json.dumps({"type": "attach", "id": name}))
        assert of_the_run(receive_all(socket)) == sent
    assert (sent[0]["type"], sent[0]["model"], sent[0]["seed"]) == ("admitted", lightcone.model, 5)
    end = sent[-1]
    tokens = [token for message in sent for token in message.get("logprobs", ())]
    assert len(tokens) == end["usage"]["completion_tokens"]
    assert "".join(token["token"] for token in tokens).startswith(sent[1]["text"])
    assert all(token["rank"] == 1 and len(token["top"]) == 3 for token in tokens)
    assert len(end["prompt_logprobs"]) == end["usage"]["prompt_tokens"]
    assert end["timings"]["queue_s"] + end["timings"]["prompt_s"] == pytest.approx(end["timings"]["first_token_s"])
    rest = list(frames(browser, name, f"?starting_after={len(sent) - 3}"))
    assert [message for _, message in rest] == sent[-2:]


def test_the_row_of_the_log_opens_from_the_answer(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    *_, (_, end) = frames(browser, start(browser, ASK))
    lightcone.wait_for(
        lambda: browser.get(end["log_url"]).status_code == 200, timeout_s=30, what="the row of the request log"
    )
    assert end["request_id"] in browser.get(end["log_url"]).text.replace("-", "")


def test_a_stop_over_http_ends_a_run_of_the_socket(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    name = secrets.token_hex(12)
    with socket_of(lightcone, browser) as socket:
        socket.send(json.dumps({"type": "start", "id": name, "request": LONG}))
        while json.loads(socket.recv(ANSWER_TIMEOUT_S))["type"] != "delta":
            pass
        assert browser.post(f"{RUNS}/{name}/stop").status_code == 202
        end = receive_all(socket)[-1]
    assert (end["type"], end["outcome"]) == ("completed", "stopped")
    *_, (_, last) = frames(browser, name)
    assert last == end


def test_a_broken_stream_goes_on_where_it_broke(lightcone: ServedLightcone, browser: httpx.Client) -> None:
    name = start(browser, LONG | {"max_tokens": 200})
    seen: list[tuple[int | None, dict[str, Any]]] = []
    for frame in frames(browser, name):
        seen.append(frame)
        if len([message for _, message in seen if message["type"] == "delta"]) == 5:
            break
    last = max(number for number, _ in seen if number is not None)
    seen += frames(browser, name, f"?starting_after={last}")
    whole = [message for number, message in frames(browser, name) if number is not None]
    assert [message for number, message in seen if number is not None] == whole


def test_refusals_have_the_shape_of_the_other_routes(browser: httpx.Client) -> None:
    refused = browser.post(RUNS, json={"id": "a", "request": ASK | {"temperature": 9}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")
    assert browser.get(f"{RUNS}/never/events").json()["error"]["code"] == "not_resumable"
    forged = browser.post(RUNS, json={}, headers={"X-CSRFToken": "wrong"})
    assert (forged.status_code, forged.json()["error"]["code"]) == (403, "permission_denied")
    assert browser.get(RUNS).status_code == 405
