"""Options of an HTTP server without keys, proxies and dialects."""

from __future__ import annotations

import json
import secrets
from typing import Any

from chat.api.server_contract import Admitted, Scope
from chat.errors import ApiError
from lightcone_site.http_server import ServerOptions


async def admit_anyone(scope: Scope) -> Admitted:
    owner = str((scope.get("client") or ("",))[0])
    return Admitted(owner, known=owner)


def render_plain_error(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    body = json.dumps({"error": error.described(), "message": error.message}).encode()
    number = error.request_id or secrets.token_hex(16)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-Id": number}
    return headers | error.headers(), body


async def nothing_to_settle() -> None:
    """Leave nothing behind."""


def server_options(**given: Any) -> ServerOptions:
    usual: dict[str, Any] = {
        "admit": admit_anyone,
        "render_error": render_plain_error,
        "is_proxy": lambda address: False,
        "drain_s": 30.0,
        "drain_delay_s": 0.0,
        "on_cut": lambda: None,
        "settle": nothing_to_settle,
    }
    return ServerOptions(**usual | given)
