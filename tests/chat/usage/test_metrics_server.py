"""The metrics port: one path, loopback hosts, and robust against broken clients and a used port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from chat.usage import metrics_server
from chat.usage.metrics_server import MetricsServer


class Text:
    """A renderer of fixed metrics that can be made to fail."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def render(self) -> bytes:
        if self.error is not None:
            raise self.error
        return b"lightcone_valkey_up 1.0\n"


@pytest.fixture
def text() -> Text:
    return Text()


@pytest.fixture
async def server(text: Text) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(text.render)
    await server.start("127.0.0.1", 0)
    yield server
    server.close()


async def send(server: MetricsServer, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


async def ask(
    server: MetricsServer, target: str = "/metrics", method: str = "GET", host: str = "localhost"
) -> tuple[int, bytes]:
    answer = await send(server, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_metrics_are_at_one_path_in_the_format_of_prometheus(server: MetricsServer) -> None:
    for target in ("/metrics", "/metrics/", "/metrics?a=b"):
        assert await ask(server, target) == (200, b"lightcone_valkey_up 1.0\n")
    assert b"text/plain; version=0.0.4" in await send(server, b"GET /metrics HTTP/1.0\r\nHost: [::1]:9464\r\n\r\n")
    assert await ask(server, method="HEAD") == (200, b"")
    assert (await ask(server, "/"))[0] == 404
    assert (await ask(server, "/v1/models"))[0] == 404
    assert (await ask(server, method="POST"))[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "", "localhost.evil.example:9464", "10.0.0.1", "a\r\nHost: localhost"]
)
async def test_requests_with_a_foreign_host_are_refused(server: MetricsServer, host: str) -> None:
    assert (await ask(server, host=host))[0] == 400


async def test_any_host_is_accepted_if_bound_to_other_machines(text: Text) -> None:
    server = MetricsServer(text.render)
    await server.start("0.0.0.0", 0)  # noqa: S104
    assert (await ask(server, host="lightcone.internal:9464"))[0] == 200
    server.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET", b"\0" * 100, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, b"\r\n\r\n", b"\xff\xfe\r\n\r\n"],
)
async def test_a_broken_request_ends_its_connection_alone(server: MetricsServer, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(sent)
        writer.write_eof()
        await reader.read()
    except ConnectionError:
        pass  # closed while we were still writing
    writer.close()
    assert (await ask(server))[0] == 200


async def test_a_slow_client_is_disconnected(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.01)
    assert await send(server, b"GET /metrics HTTP/1.1\r\n") == b""


async def test_a_failure_to_read_is_a_500_without_details(
    server: MetricsServer, text: Text, caplog: pytest.LogCaptureFixture
) -> None:
    text.error = RuntimeError("secret")
    status, body = await ask(server)
    assert (status, b"secret" in body) == (500, False)
    text.error = None
    assert (await ask(server))[0] == 200


async def test_a_used_port_disables_metrics_with_a_warning(
    server: MetricsServer, text: Text, caplog: pytest.LogCaptureFixture
) -> None:
    second = MetricsServer(text.render)
    with caplog.at_level(logging.WARNING):
        await second.start("127.0.0.1", server.port)
        await second.start("x" * 100, 0)
    assert second.port == 0
    assert "LIGHTCONE_METRICS_PORT" in caplog.text
    second.close()


async def test_open_connections_end_silently_with_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    """Their tasks are cancelled with the loop, which streams of Python 3.11 log with a traceback."""
    is_asked = asyncio.Event()

    async def render() -> bytes:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    server = MetricsServer(render)
    await server.start("127.0.0.1", 0)
    before = asyncio.all_tasks()
    asking = asyncio.create_task(send(server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    await is_asked.wait()
    server.close()
    for task in asyncio.all_tasks() - before - {asking}:
        task.cancel()
    assert await asking == b""
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]
