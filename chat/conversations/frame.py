"""The frame of the page's API: the session's user, the CSRF token, JSON answers and errors of OpenAI's shape."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from rest_framework.authentication import CSRFCheck

from chat.access.accounts import playground_caller
from chat.access.keys import Caller, KeyInvalid
from chat.api.dialect import OpenAIErrorFormat
from chat.api.request.fields import field_read, integer_read
from chat.api.view import error_response, method_name, request_id
from chat.conversations.disclosure import chats_read_record
from chat.errors import ApiError, api_error
from engine.api import EngineError

logger = logging.getLogger(__name__)

T = TypeVar("T")
SAFE_METHODS = ("GET", "HEAD")
SIGNED_OUT_MESSAGE = "You are signed out; sign in and try again."
NOT_ALLOWED_MESSAGE = "Your account may not use the playground; an administrator can allow it."


class PageFormat(OpenAIErrorFormat):
    name = "playground"


PAGE_FORMAT = PageFormat()


@dataclass(frozen=True, slots=True)
class Visit:
    """A signed-in user, and the user whose conversations are asked for: the same one, or an administrator reads."""

    caller: Caller
    user_id: int


Handler = Callable[..., HttpResponse]
AsyncHandler = Callable[..., Awaitable[HttpResponseBase]]


def page_view(*, is_private: bool = False, **handlers: Handler) -> Handler:
    """Return a view for the named methods (`get=`, `post=`), for users of the playground. Each gets a Visit.

    What `is_private` administrators do not read either.
    """

    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        visit = visit_of(request)
        if is_private:
            _check_private(request)
        handler = _chosen(request, handlers)
        if visit.user_id != request.user.pk:
            what, conversation_id = request.resolver_match.url_name, kwargs.get("conversation_id", "")
            chats_read_record(user_id=visit.user_id, what=what, conversation_id=conversation_id)
        return handler(request, visit, **kwargs)

    return with_json_errors(answer)


def page_view_async(**handlers: AsyncHandler) -> AsyncHandler:
    """Return a view as `page_view` does, for private things and handlers that wait for models."""

    @csrf_exempt
    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            csrf_check(request)
            visit = await database_sync_to_async(visit_of)(request)
            _check_private(request)
            return await _chosen(request, handlers)(request, visit, **kwargs)
        except Exception as failure:
            return _failed(request, failure)

    exempt: AsyncHandler = view
    return exempt


def _chosen(request: HttpRequest, handlers: Mapping[str, T]) -> T:
    """Return the handler of the request's method. Raises ApiError 405."""
    handler = handlers.get("get" if request.method == "HEAD" else str(request.method).lower())
    if handler is None:
        allowed = ", ".join(sorted({name.upper() for name in handlers} | ({"HEAD"} if "get" in handlers else set())))
        message = f"{method_name(request)} is not allowed here; use {allowed}."
        raise ApiError("method_not_allowed", message, headers={"Allow": allowed})
    return handler


def _check_private(request: HttpRequest) -> None:
    if "user" in request.GET:
        raise ApiError("permission_denied", "Nobody but its owner may read this; leave out user.", "user")


def with_json_errors(answer: Handler) -> Handler:
    """Return a view whose failures are JSON. The CSRF token is checked here, as Django's refusal is a page."""

    @csrf_exempt
    def view(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            csrf_check(request)
            return answer(request, **kwargs)
        except Exception as failure:
            return _failed(request, failure)

    exempt: Handler = view
    return exempt


def _failed(request: HttpRequest, failure: Exception) -> HttpResponse:
    if not isinstance(failure, ApiError | EngineError):
        logger.error("Request %s failed", request_id(request), exc_info=failure)
    error = api_error(failure)
    return error_response(PAGE_FORMAT, error, error.request_id or request_id(request))


def visit_of(request: HttpRequest) -> Visit:
    """Return who is here. Raises ApiError 401 without a session, 403 without the permission to chat.

    `?user=` names another account: an administrator may read its conversations if LIGHTCONE_CHAT_ADMIN_READ says so.
    """
    user = request.user
    # A page that was open when somebody else signed in writes nothing into their account.
    if not user.is_authenticated or request.headers.get("X-Lightcone-User", str(user.pk)) != str(user.pk):
        raise ApiError("signed_out", SIGNED_OUT_MESSAGE)
    try:
        caller = playground_caller(user=user)
    except KeyInvalid:
        raise ApiError("permission_denied", NOT_ALLOWED_MESSAGE) from None
    asked = request.GET.get("user", "")
    if not asked:
        return Visit(caller, user.pk)
    if not (settings.LIGHTCONE_CHAT_ADMIN_READ and user.is_superuser and request.method in SAFE_METHODS):
        message = "Nobody but their owner may do this with conversations"
        raise ApiError("permission_denied", f"{message}; LIGHTCONE_CHAT_ADMIN_READ lets administrators read.", "user")
    user_id = field_read("user", integer_read, asked)
    logger.warning("administrator %d reads conversations of user %d", user.pk, user_id)
    return Visit(caller, user_id)


def csrf_check(request: HttpRequest) -> None:
    """Raise ApiError 403 for a write without the token of its page."""
    check = CSRFCheck(lambda _: HttpResponse())
    check.process_request(request)
    if reason := check.process_view(request, None, (), {}):
        message = f"{reason} Send the token of the cookie {settings.CSRF_COOKIE_NAME} in the header X-CSRFToken."
        raise ApiError("permission_denied", message)
