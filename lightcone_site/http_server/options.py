"""What a server is given: its limits, and the functions of the application that it calls."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from chat.api.server_contract import Admitted, Scope
from chat.errors import ApiError


class Limits(Protocol):
    """The numbers that this server reads (lightcone_site.limits.HttpLimits); times in seconds."""

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


async def admit_anyone(scope: Scope) -> Admitted:
    """Admit every body: the default, for servers without keys."""
    owner = str((scope.get("client") or ("",))[0])
    return Admitted(owner, known=owner)


def no_proxy(address: str) -> bool:
    """Trust no proxy: the default."""
    return False


def render_plain_error(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Return headers and body of an error, the same for all paths: the default, for servers without dialects."""
    body = json.dumps({"error": error.described(), "message": error.message}).encode()
    number = error.request_id or secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": number}
    return headers | error.headers(), body


async def nothing_to_settle() -> None:
    """Leave nothing behind: the default."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The functions of the application that a server calls, and the times of its stop in seconds."""

    admit: Callable[[Scope], Awaitable[Admitted]] = admit_anyone
    """Check a request whose headers have arrived and whose body has not. Raises ApiError to refuse the body."""
    render_error: Callable[[str, str | None, ApiError], tuple[dict[str, str], bytes]] = render_plain_error
    """Return headers and body of an error, from the path and the Origin header of its request."""
    is_proxy: Callable[[str], bool] = no_proxy
    """Return True for an address that many clients come through."""
    drain_s: float = 30.0
    drain_delay_s: float = 0.0
    on_cut: Callable[[], None] = lambda: None
    """Called before running answers are cut."""
    settle: Callable[[], Awaitable[None]] = nothing_to_settle
    """Finish what cut answers leave behind. It has little time."""
