"""A receiver of webhooks on loopback, as an operator would write one. It answers as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Receiver:
    """What has arrived, and the next answers. Without answers it says 200."""

    url: str = ""
    got: list[tuple[dict[str, str], str]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Unset: requests hang."""


def receiver_start() -> tuple[Receiver, Callable[[], None]]:
    """Start a receiver. Return it and what stops it."""
    receiver = Receiver()
    receiver.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            receiver.arrived.set()
            receiver.may_answer.wait(30)
            status, headers, content = receiver.answers.pop(0) if receiver.answers else (200, {}, b"taken")
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                pass  # the sender has left

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?token=t"

    def stop() -> None:
        receiver.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()

    return receiver, stop


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A receiver that the setting admits."""
    settings.LIGHTCONE_WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    made, stop = receiver_start()
    yield made
    stop()
