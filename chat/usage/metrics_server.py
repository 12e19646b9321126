"""The HTTP/1.1 server of the metrics port, beside the loops of the maintenance worker and off the public port.

It serves `GET /metrics`, answers one request per connection and reads no body. On a loopback address it accepts only
loopback names, so that no web page reads it under a host name that was rebound to this machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chat.access.addresses import is_loopback

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 10.0
MAX_HEAD_BYTES = 16_384
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}

Render = Callable[[], Awaitable[bytes]]


class MetricsServer:
    """Serves what `render` returns. `port`: where it listens; 0 before `start`, and if it cannot listen."""

    def __init__(self, render: Render) -> None:
        self.port = 0
        self._render = render
        self._rendering = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._is_local_only = True

    async def start(self, host: str, port: int) -> None:
        """Listen. An address that cannot be listened on is logged, and there are no metrics."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is no valid name
            logger.warning(
                "no metrics: %s:%d cannot be listened on (%s); LIGHTCONE_METRICS_PORT chooses another port",
                host,
                port,
                error,
            )
            return
        self.port = self._server.sockets[0].getsockname()[1]
        self._is_local_only = is_loopback(host)
        logger.info("metrics at http://%s:%d/metrics", host, self.port)

    def close(self) -> None:
        """Stop listening, without waiting for clients that are being answered."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client sent nothing, too slowly or too much, or has disconnected
        except asyncio.CancelledError:
            pass  # the worker ends; asyncio's streams would log the cancelled callback as a defect
        finally:
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        line, *fields = head.decode("latin-1").split("\r\n")
        method, _, rest = line.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        if self._is_local_only and not is_loopback(_host(fields)):
            return _response(400, b"This address is served under loopback names only.\n")
        if target.rstrip("/") != "/metrics":
            return _response(404, b"Metrics are at /metrics.\n")
        if method not in ("GET", "HEAD"):
            return _response(405, b"Use GET.\n", allow="GET, HEAD")
        try:
            async with self._rendering:
                body = await self._render()
        except Exception:
            logger.exception("metrics could not be read")
            return _response(500, b"The metrics could not be read; the log of the maintenance worker says why.\n")
        return _response(200, body, has_body=method == "GET")


def _response(status: int, body: bytes, *, allow: str = "", has_body: bool = True) -> bytes:
    allow_line = f"Allow: {allow}\r\n" if allow else ""
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\n{allow_line}"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if has_body else b"")


def _host(fields: list[str]) -> str:
    """Return the name in the Host header, without its port; "" without exactly one such header."""
    values = [value.strip() for name, _, value in (field.partition(":") for field in fields) if name.lower() == "host"]
    if len(values) != 1:
        return ""
    name, _, port = values[0].rpartition(":")
    return name if name and port.isdigit() else values[0]
