"""The frame of the page's asynchronous routes: its visitor, the CSRF token, errors in JSON."""

from __future__ import annotations

import logging
from typing import Any

from channels.db import database_sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat.access.keys import KeyInvalid
from chat.api.view import Handler, error_response, method_name, request_id
from chat.conversations.frame import NOT_ALLOWED_MESSAGE, PAGE_FORMAT, SIGNED_OUT_MESSAGE, csrf_check
from chat.errors import ApiError, api_error
from chat.playground.running import Visitor, visitor_of
from engine.api import EngineError

logger = logging.getLogger(__name__)


def page_view_async(method: str, handler: Handler) -> Handler:
    """Return a view for one method, for users of the playground. The handler gets a Visitor."""

    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            csrf_check(request)
            visitor = await visitor_here(request)
            if request.method != method:
                message = f"{method_name(request)} is not allowed here; use {method}."
                raise ApiError("method_not_allowed", message, headers={"Allow": method})
            return await handler(request, visitor, **kwargs)
        except Exception as failure:
            if not isinstance(failure, ApiError | EngineError):
                logger.exception("Request %s failed", request_id(request))
            error = api_error(failure)
            return error_response(PAGE_FORMAT, error, error.request_id or request_id(request))

    exempt: Handler = csrf_exempt(view)
    return exempt


async def visitor_here(request: HttpRequest) -> Visitor:
    """Return who is here. Raises ApiError 401 without a session, 403 without the permission to chat."""
    user = await request.auser()
    if not user.is_authenticated:
        raise ApiError("signed_out", SIGNED_OUT_MESSAGE)
    try:
        return await database_sync_to_async(visitor_of)(user)
    except KeyInvalid:
        raise ApiError("permission_denied", NOT_ALLOWED_MESSAGE) from None
