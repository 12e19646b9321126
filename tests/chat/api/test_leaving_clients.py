"""A disconnect ends the run of its client, streamed or not, admitted or not."""

import asyncio
import json

import pytest

from tests.chat.api.conftest import ADMITTED, KEY, ROUTE, chat, delta


class Connection:
    """One ASGI request whose client can disconnect."""

    def __init__(self, body: dict) -> None:
        self.messages: asyncio.Queue = asyncio.Queue()
        self.messages.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
        self.sent: asyncio.Queue = asyncio.Queue()
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": ROUTE,
            "raw_path": ROUTE.encode(),
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"authorization", f"Bearer {KEY}".encode()),
            ],
            "client": ("127.0.0.1", 5),
        }

    def start(self) -> asyncio.Task:
        from lightcone_site.asgi import http

        return asyncio.create_task(http(self.scope, self.messages.get, self.sent.put))

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


class SilentReader:
    """A reader that sends one delta (after an admission, if `admits`), then waits for ever."""

    headers: dict[str, str] = {}
    waits_for_model = False

    def __init__(self, *, admits: bool) -> None:
        self.admits = admits
        self.waits = asyncio.Event()
        self.has_left = asyncio.Event()
        self.num_said = 0

    async def first(self, *, timeout_s: float | None = None):
        if not self.admits:
            await self._wait()
        return ADMITTED

    async def next(self, timeout_s: float):
        if self.num_said == 0:
            from engine.api import Event

            self.num_said = 1
            return Event(1, 1, delta("x"))
        return await self._wait()

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._wait()

    async def _wait(self):
        self.waits.set()
        await asyncio.Event().wait()

    def leave(self) -> None:
        self.has_left.set()


@pytest.mark.parametrize(("stream", "admits"), [(True, True), (True, False), (False, True), (False, False)])
async def test_a_disconnect_leaves_the_run_at_once(scripted, monkeypatch, stream, admits):
    reader = SilentReader(admits=admits)

    async def start(**_):
        return reader

    monkeypatch.setattr("chat.api.answering.pipeline.completion_start", start)
    connection = Connection(chat(stream=stream))
    task = connection.start()
    async with asyncio.timeout(5):
        await reader.waits.wait()
        connection.leave()
        await reader.has_left.wait()
        await task
