"""The client of the terminal, against servers that answer as no chat completions API does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lightcone_site.terminal.client import Client, Piece, TerminalError

JSON, EVENTS = "application/json", "text/event-stream"


class Answering(BaseHTTPRequestHandler):
    """Gives one answer: status, content type, body. `seen`: the keys that were sent."""

    answer = (200, JSON, b"")
    seen: list[str | None] = []

    def do_GET(self) -> None:
        status, kind, body = self.answer
        self.seen.append(self.headers.get("Authorization"))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def events(*values: object) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def choice(**delta: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta}]}


DONE = b"data: [DONE]\n\n"


def test_an_answer_comes_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    body = events(choice(reasoning_content="hm"), choice(content="yes"), end, {"choices": []}) + DONE
    monkeypatch.setattr(Answering, "answer", (200, f"{EVENTS}; charset=utf-8", body))
    pieces = list(Client(url, "key").answer("model", [], {}))
    assert pieces == [Piece("hm", is_reasoning=True), Piece("yes"), Piece("", finish_reason="stop")]


@pytest.mark.parametrize(
    ("status", "kind", "body", "words"),
    [
        (200, "text/html", b"<html>", "is no root of a chat completions API"),
        (302, "text/html", b"", "the server answered 302"),
        (502, "text/html", b"<h1>Bad  gateway</h1>", "the server answered 502: <h1>Bad gateway</h1>"),
        (400, JSON, b'{"error": {"message": "temperature must be at most 2"}}', "temperature must be at most 2"),
        (200, EVENTS, events(choice(content="half")), "the connection ended before the answer did"),
        (200, EVENTS, events({"error": {"message": "the model died"}}), "the model died"),
        (200, EVENTS, events({"error": "died"}), "answers as no chat completions API does"),
        (200, EVENTS, events({"usage": 1}), "answers as no chat completions API does"),
        (200, EVENTS, b"data: {\n\n", "answers as no chat completions API does"),
    ],
)
def test_what_is_no_answer_is_said(url: str, status: int, kind: str, body: bytes, words: str, monkeypatch) -> None:
    monkeypatch.setattr(Answering, "answer", (status, kind, body))
    with pytest.raises(TerminalError, match=words):
        list(Client(url, "key").answer("model", [], {}))


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"data": [{}]}'])
def test_a_list_of_models_that_is_none_is_said(url: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answering, "answer", (200, JSON, body))
    with pytest.raises(TerminalError, match="answers as no chat completions API does"):
        Client(url, "key").models()


@pytest.mark.parametrize(("url", "key"), [("http://[::1", "key"), ("http://127.0.0.1:1", "ä")])
def test_an_url_or_a_key_that_cannot_be_is_said(url: str, key: str) -> None:
    with pytest.raises(TerminalError, match="cannot be asked: check the URL, the key"):
        Client(url, key).models()


def test_no_proxy_is_asked_for_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answering, "answer", (200, JSON, b'{"data": []}'))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert Client(url, "key", is_local=True).models() == []
    with pytest.raises(TerminalError, match="does not answer"):
        Client(url.replace("127.0.0.1", "elsewhere.invalid"), "key").models()
