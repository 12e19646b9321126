"""What is given to a server: its limits, and the shape of its errors."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Protocol

from chat.errors import ApiError

Describe = Callable[[str, str | None, ApiError], tuple[dict[str, str], bytes]]
"""Headers and body of an error, from the path and the Origin header of its request."""


class Limits(Protocol):
    """The numbers this server reads (lightcone_site.limits.HttpLimits); times in seconds."""

    max_body_bytes: int
    max_headers_bytes: int
    max_header_bytes: int
    max_headers: int
    max_target_bytes: int
    header_timeout: int
    body_timeout: int
    idle_timeout: int
    max_connections: int
    stream_buffer_bytes: int
    write_timeout: int
    max_ws_message_bytes: int

    def body_bytes(self, path: str) -> int: ...


def plain_error(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an error, the same for all paths; for servers without dialects."""
    body = json.dumps({"error": error.described(), "message": error.message}).encode()
    return {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": secrets.token_hex(16)}, body
