"""A server of files on loopback, which answers each path as the test says and keeps what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Writer = asyncio.StreamWriter


@dataclass
class Asked:
    """One request: its target and headers, names in small letters."""

    target: str
    headers: dict[str, str]


@dataclass
class FileServer:
    """`answers`: by path, the bytes of a whole answer, or a coroutine function that writes it."""

    port: int = 0
    answers: dict[str, object] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    """Of TLS handshakes."""
    connections: list[asyncio.Task[None]] = field(default_factory=list)
    """Each ends as its client closes."""

    def url(self, path: str, host: str = "files.example", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return the bytes of an answer; names of headers have underscores for hyphens."""
    lines = {"content-length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}connection: close\r\n\r\n".encode() + body


@asynccontextmanager
async def file_server(context: ssl.SSLContext | None = None) -> AsyncIterator[FileServer]:
    made = FileServer()

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        made.connections.append(task)
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            target = first.split(" ")[1]
            made.asked.append(Asked(target, headers))
            planned = made.answers.get(target.partition("?")[0], answer(status="404 Not Found"))
            if isinstance(planned, bytes):
                writer.write(planned)
                await writer.drain()
            else:
                assert callable(planned)
                await planned(writer)
            if writer.can_write_eof():
                writer.write_eof()
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()

    def note_name(_: object, name: str | None, __: object) -> None:
        made.server_names.append(name)

    if context is not None:
        context.sni_callback = note_name
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def endless(head: bytes, chunk: bytes, gap: Callable[[], object] | None = None) -> Callable[[Writer], object]:
    """Return an answer that never ends."""

    async def write(writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + head)
        while True:
            writer.write(chunk)
            await writer.drain()
            if gap is not None:
                await gap()  # type: ignore[misc]

    return write
