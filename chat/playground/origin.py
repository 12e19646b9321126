"""Admit sockets from pages of this host and port only.

Cookies ignore ports, so a page of another program on the same host would come with the session of the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


async def refuse_socket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake with 403."""
    await receive()
    await send({"type": "websocket.close"})


class SameOriginOnly:
    """The ASGI middleware that checks the origin of sockets. Origins of LIGHTCONE_TRUSTED_ORIGINS pass too."""

    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.application if is_same_origin(scope) else refuse_socket)(scope, receive, send)


def is_same_origin(scope: Scope) -> bool:
    """Return True if Host names this server, and Origin the same host and port or a trusted origin."""
    headers = {name: value.decode("latin-1").lower() for name, value in scope["headers"]}
    host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return origin in (f"http://{host}", f"https://{host}", *settings.CSRF_TRUSTED_ORIGINS)
