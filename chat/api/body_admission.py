"""Decide whose bodies are accepted. The HTTP server asks when the headers of a request are here and its body is not.

A request without a valid key is refused then, so that nobody fills the memory with bodies that are thrown away. Pages
and routes that need no key accept bodies of the size of a form. The view finds the caller in the scope and does not
check the key again.
"""

from __future__ import annotations

import io
import logging

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.urls import Resolver404, get_resolver

from chat.access.addresses import request_address
from chat.api.middleware import CLEAN_ID, dialect_for_path, is_api_path, resolved
from chat.api.server_contract import Admitted, Scope
from chat.api.view import caller_require, needs_no_key
from chat.errors import ApiError

logger = logging.getLogger(__name__)


async def body_admit(scope: Scope) -> Admitted:
    """Return the bounds of a body. Raises ApiError if it is not wanted."""
    request = ASGIRequest(scope, io.BytesIO())
    small = Admitted(
        owner=f"address {request_address(request)}", max_body_bytes=settings.LIGHTCONE_HTTP_LIMITS.max_page_body_bytes
    )
    if not is_api_path(scope["path"]) or scope["method"] == "OPTIONS" or _is_open(scope["path"]):
        return small
    try:
        caller = await caller_require(request, dialect_for_path(scope["path"]))
    except DisallowedHost:
        return small  # its view says so
    except ApiError as error:
        sent_id = request.headers.get("X-Request-Id", "")
        error.request_id = sent_id if CLEAN_ID.fullmatch(sent_id) else None
        raise
    except Exception:
        logger.exception("A key could not be looked at before its body")
        return Admitted(owner=small.owner)  # its view fails as well, with an answer and a record
    return Admitted(owner=f"project {caller.project_id}", known=caller)


def _is_open(path: str) -> bool:
    try:
        return needs_no_key(resolved(get_resolver(), path).func)
    except Resolver404:
        return False
