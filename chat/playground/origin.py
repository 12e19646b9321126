"""Admit sockets of this host and port only: cookies ignore ports, and another program's page would have the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


async def refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake with 403."""
    await receive()
    await send({"type": "websocket.close"})


def same_origin_only(application: Application) -> Application:
    """Return the ASGI application behind a check of the origin of sockets."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        await (application if is_same_origin(scope) else refuse_socket)(scope, receive, send)

    return checked


def is_same_origin(scope: Scope) -> bool:
    """Return True if Host names this server, and Origin the same host and port or one of LIGHTCONE_TRUSTED_ORIGINS."""
    headers = {name: value.decode("latin-1").lower() for name, value in scope["headers"]}
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return origin in (f"http://{host}", f"https://{host}", *settings.CSRF_TRUSTED_ORIGINS)
