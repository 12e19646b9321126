"""The frame of every API view: one shape of errors, one way to know the caller, JSON answers, ids."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat.access.authentication import AuthFailures, caller_identify
from chat.access.keys import Caller
from chat.access.permissions import right_require
from chat.api.dialect import ErrorFormat
from chat.errors import ApiError, names_unchanged, unforeseen_error
from chat.relay.web.refusals import refusals

logger = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[HttpResponseBase]]

MAX_METHOD_CHARS = 16
RETRY_COUNT = re.compile(r"[0-9]{1,4}", re.ASCII)
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)

_views_with_delete: set[Handler] = set()
_open_views: set[Handler] = set()
_failures = AuthFailures(
    limit=settings.LIGHTCONE_LIMITS.max_auth_failures, window_s=settings.LIGHTCONE_LIMITS.auth_failure_window
)


def api_view(dialect: ErrorFormat, *, is_open: bool = False, **handlers: Handler) -> Handler:
    """Return a view for the named methods (`get=`, `post=`). Every failure leaves in the dialect's error shape.

    `is_open` needs no key.
    """
    allowed = ", ".join(
        sorted({name.upper() for name in handlers} | ({"HEAD"} if "get" in handlers else set()) | {"OPTIONS"})
    )

    async def handle(request: HttpRequest, dialect: ErrorFormat, **kwargs: Any) -> HttpResponseBase:
        handler = handlers.get("get" if request.method == "HEAD" else (request.method or "").lower())
        if handler is not None:
            return await handler(request, dialect, **kwargs)
        if not is_open:
            await caller_require(request, dialect)
        message = f"{method_name(request)} is not allowed here; use {allowed}."
        raise ApiError("method_not_allowed", message, headers={"Allow": allowed})

    view = _answering(dialect, handle)
    if "delete" in handlers:
        _views_with_delete.add(view)
    if is_open:
        _open_views.add(view)
    return view


def takes_delete(view: Handler) -> bool:
    """Return True if a preflight of this view names DELETE too."""
    return view in _views_with_delete


def needs_no_key(view: Handler) -> bool:
    """Return True if this view needs no key."""
    return view in _open_views


def _answering(dialect: ErrorFormat, handler: Handler) -> Handler:
    """Return the handler as a view whose failures are answers."""

    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            return await handler(request, dialect, **kwargs)
        except ApiError as error:
            # NOTE: here alone, and where streams end, errors get the field names that the client sent.
            error.rename_fields(getattr(request, "lightcone_field_names", names_unchanged))
            return error_response(dialect, error, request_id(request))
        except Exception as error:
            logger.exception("Request %s failed", request_id(request))
            headers = getattr(request, "lightcone_headers", None)
            return error_response(dialect, unforeseen_error(error, headers), request_id(request))

    exempt: Handler = csrf_exempt(view)
    return exempt


def error_response(dialect: ErrorFormat, error: ApiError, request_id: str | None = None) -> HttpResponse:
    """Return the response of an error. Some dialects' errors hold `request_id`, that of the failed request."""
    error.request_id = request_id
    return json_response(dialect.error_body(error), status=error.status, headers=error.headers())


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a response with `value` as JSON; bytes are JSON already."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return HttpResponse(
        body, status=status, content_type="application/json", headers={"Cache-Control": "no-store", **(headers or {})}
    )


def request_id(request: HttpRequest) -> str:
    """Return the id of this HTTP request: the client's clean X-Request-Id, or a new one.

    The middleware sends it back.
    """
    value: str | None = getattr(request, "lightcone_request_id", None)
    if value is None:
        value = request.lightcone_request_id = secrets.token_hex(16)
    return value


@dataclass(frozen=True, slots=True)
class ClientHints:
    """The facts that a client's library sends about itself: `retry_count`, how often it has sent this request before,
    and `patience_s`, how long it waits for bytes, None if unknown. They inform the log; no answer depends on them.
    """

    retry_count: int
    patience_s: float | None


def client_hints(request: HttpRequest) -> ClientHints:
    """Read the headers of Stainless's clients, in Python and TypeScript. Other values count as not sent."""
    count = request.headers.get("X-Stainless-Retry-Count", "")
    patience = request.headers.get("X-Stainless-Read-Timeout") or request.headers.get("X-Stainless-Timeout") or ""
    return ClientHints(
        retry_count=int(count) if RETRY_COUNT.fullmatch(count) else 0,
        patience_s=float(patience) if SECONDS.fullmatch(patience) else None,
    )


async def caller_require(request: HttpRequest, dialect: ErrorFormat, right: str | None = None) -> Caller:
    """Return the caller of the request's key.

    Raises ApiError 401, 403 or 429, and 400 for a dialect's header that is out of bounds.
    """
    caller: Caller | None = getattr(
        request, "lightcone_caller", None
    )  # the key was checked before the body came, or with the batch
    if caller is None:
        try:
            caller = await caller_identify(request, key_header=dialect.key_header, failures=_failures)
        except ApiError as error:
            refusals.note(error.status)
            raise
        request.lightcone_caller = caller
    _check_headers(request, dialect)
    if right is not None:
        right_require(caller, right)
    return caller


def _check_headers(request: HttpRequest, dialect: ErrorFormat) -> None:
    for name, limit in dialect.header_limits.items():
        if len(request.headers.get(name, "")) > limit:
            raise ApiError(
                "invalid_value",
                f"The {name} header has more than {limit} characters; shorten it or leave it out.",
                name,
            )


async def unknown(request: HttpRequest, dialect: ErrorFormat, **_: Any) -> HttpResponseBase:
    """Answer any other path of the API. Without a key nothing is revealed about paths."""
    await caller_require(request, dialect)
    raise ApiError("not_found", f"Unknown request URL: {method_name(request)} {request.path[:200]}.")


def method_name(request: HttpRequest) -> str:
    """Return the method, cut, as a client may send anything."""
    return str(request.method)[:MAX_METHOD_CHARS]


def unknown_view(dialect: ErrorFormat) -> Handler:
    """Return a view that calls `unknown` for any method."""
    return _answering(dialect, unknown)
