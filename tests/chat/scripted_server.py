"""A child process for test_server.py: our HTTP server with small limits around a scripted ASGI application.

It prints its port, then one line per event of the application: `started`, `left`, `done N` (bytes of the body).
"""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace

from chat.api.server_contract import ADMITTED, STOP, Admitted
from chat.errors import ApiError
from lightcone_site import http_server
from lightcone_site.limits import HttpLimits
from tests.chat.server_options import server_options

LIMITS = replace(
    HttpLimits(),
    max_body_bytes=10_000,
    max_upload_bytes=20_000,
    max_bodies_bytes=60_000,
    max_headers_bytes=4_096,
    max_header_bytes=1_024,
    max_headers=20,
    max_target_bytes=512,
    header_timeout=1,
    body_timeout=1,
    idle_timeout=1,
    max_connections=8,
    max_connections_per_address=6,
    stream_buffer_bytes=200_000,
    max_unread_bytes=600_000,
    write_timeout=1,
    min_read_bytes=20_000,
)
PROXY = "127.0.0.9"


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def admit(scope) -> Admitted:
    """Admit bodies by a header: of a named owner, of strangers, or none with a bad key."""
    headers = dict(scope["headers"])
    if headers.get(b"x-key") == b"bad":
        say("refused")
        raise ApiError("invalid_api_key", "No.")
    owner = headers.get(b"x-key", b"anybody").decode()
    return Admitted(owner, known=None if owner == "stranger" else "somebody")


async def application(scope, receive, send) -> None:
    say("started")
    if scope["type"] == "websocket":
        await pour_into_socket(receive, send)
        return
    num_bytes = 0
    while True:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            break
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
    if scope["path"] == "/known":
        await send(start)
        await send({"type": "http.response.body", "body": scope[ADMITTED].known.encode()})
    elif scope["path"] == "/ready":
        await send({**start, "status": 503 if scope[STOP].is_announced else 200})
        await send({"type": "http.response.body", "body": b"."})
    elif scope["path"] == "/headers":
        await send(start)
        names = b",".join(name for name, _ in scope["headers"])
        await send({"type": "http.response.body", "body": names})
    elif scope["path"] == "/file":
        pieces = 300
        await send({**start, "headers": [*start["headers"], (b"Content-Length", b"%d" % (pieces * 65_536))]})
        for number in range(pieces):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": number < pieces - 1})
        say("sent")
    elif scope["path"] in ("/wait", "/begun", "/stream", "/flood", "/for-ever"):
        await pour(scope["path"], scope[STOP], start, receive, send)
    else:
        await send(start)
        await send({"type": "http.response.body", "body": b"%d" % num_bytes})
        say(f"done {num_bytes}")


async def pour_into_socket(receive, send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    left = asyncio.create_task(receive())
    while not left.done():
        await send({"type": "websocket.send", "text": "x" * 65_536})
        await asyncio.wait([left], timeout=0.01)
    say("left")


async def pour(path, stop, start, receive, send) -> None:
    """Wait for ever, after the head or while writing; report when the client has left.

    `/wait` ends when the server stops, as does `/begun`, whose head was sent before. `/stream` ends when the stop is
    announced.
    """
    if path == "/begun":
        await send(start)
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await stop.closing.wait()
        await send({"type": "http.response.body", "body": b"x" * 150_000 + b"whole"})
        say("ended")
        return
    if path != "/wait":
        await send(start)
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
    left = asyncio.create_task(receive())
    while not left.done():
        if path == "/wait" and stop.closing.is_set():
            await send(start)
            await send({"type": "http.response.body", "body": b"whole"})
            say("ended")
            return
        if path == "/stream" and stop.is_announced:
            await send({"type": "http.response.body", "body": b"whole"})
            say("ended")
            return
        if path == "/flood":
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await asyncio.wait([left], timeout=0.01)
    say("left")


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    say(str(listener.getsockname()[1]))
    drain_s, drain_delay_s = (float(given) for given in sys.argv[1:])

    async def settle() -> None:
        say("settled")

    options = server_options(
        admit=admit,
        is_proxy=PROXY.__eq__,
        drain_s=drain_s,
        drain_delay_s=drain_delay_s,
        on_cut=lambda: say("cut"),
        settle=settle,
    )
    http_server.serve(
        application, limits=LIMITS, options=options, socket_fd=listener.fileno(), on_ready=lambda: say("ready")
    )


if __name__ == "__main__":
    main()
