"""What is given to a server: its limits, who lets bodies in, and the shape of its errors."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

from chat.api.server_contract import Admitted, Scope
from chat.errors import ApiError

Describe = Callable[[str, str | None, ApiError], tuple[dict[str, str], bytes]]
"""Headers and body of an error, from the path and the Origin header of its request."""


class Limits(Protocol):
    """The numbers this server reads (lightcone_site.limits.HttpLimits); times in seconds."""

    max_body_bytes: int
    max_bodies_bytes: int
    max_headers_bytes: int
    max_header_bytes: int
    max_headers: int
    max_target_bytes: int
    header_timeout: int
    body_timeout: int
    idle_timeout: int
    max_connections: int
    max_connections_per_address: int
    stream_buffer_bytes: int
    max_unread_bytes: int
    write_timeout: int
    min_read_bytes: int
    max_ws_message_bytes: int

    def body_bytes(self, path: str) -> int: ...


Admit = Callable[[Scope], Awaitable[Admitted]]
"""Looks at a request whose headers are here and whose body is not; raises ApiError for one whose body is not wanted."""


async def admit_anyone(scope: Scope) -> Admitted:
    """For servers without keys."""
    owner = str((scope.get("client") or ("",))[0])
    return Admitted(owner, known=owner)


def no_proxy(address: str) -> bool:
    """For servers that nobody stands before."""
    return False


def plain_error(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an error, the same for all paths; for servers without dialects."""
    body = json.dumps({"error": error.described(), "message": error.message}).encode()
    number = error.request_id or secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": number}
    return headers | error.headers(), body
