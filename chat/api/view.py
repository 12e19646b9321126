"""The frame of every API view: the caller, the body, one shape of errors, JSON answers, ids."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from chat.access.addresses import request_address
from chat.access.admin_keys import AdminCaller
from chat.access.authentication import AuthFailures, admin_identify, caller_identify
from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.request.strict_json import json_object_read
from chat.audit.actions import ActorKind
from chat.audit.origin import Origin, origin_set
from chat.errors import ApiError, api_error, names_unchanged
from chat.relay.web.chores import refusals
from engine.api import EngineError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[..., Awaitable[HttpResponseBase]]

INLINE_BODY_BYTES = 64 * 1024
MAX_METHOD_CHARS = 16
IGNORED_HEADER = "X-Lightcone-Ignored"
"""Names the fields that the dialect does not know, and tools that this server cannot run."""
MAX_IGNORED_BYTES = 1_024
MAX_IGNORED_NAME_CHARS = 64
PLAIN = "-_.:[]"
"""Characters that stay as they are in that header, beside letters and digits. All others are percent-encoded."""
MORE = ", ..."
RETRY_COUNT = re.compile(r"[0-9]{1,4}", re.ASCII)
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)

VIEWS_WITH_DELETE: set[Handler] = set()
"""Views whose preflight names DELETE too."""
OPEN_VIEWS: set[Handler] = set()
"""Views that need no key."""

_check_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="request-check")
_failures = AuthFailures(
    limit=settings.LIGHTCONE_LIMITS.max_auth_failures, window_s=settings.LIGHTCONE_LIMITS.auth_failure_window
)


def api_view(dialect: ErrorFormat, *, is_open: bool = False, **handlers: Handler) -> Handler:
    """Return a view for the named methods (`get=`, `post=`); every failure has the dialect's shape."""
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
        VIEWS_WITH_DELETE.add(view)
    if is_open:
        OPEN_VIEWS.add(view)
    return view


def _answering(dialect: ErrorFormat, handler: Handler) -> Handler:
    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        try:
            return await handler(request, dialect, **kwargs)
        except Exception as failure:
            if not isinstance(failure, ApiError | EngineError):
                logger.exception("Request %s failed", request_id(request))
            error = api_error(failure)
            error.extra_headers = getattr(request, "lightcone_headers", {}) | error.extra_headers
            # NOTE: here alone, and where streams end, errors get the field names that the client sent.
            error.rename_fields(getattr(request, "lightcone_field_names", names_unchanged))
            return error_response(dialect, error, request_id(request))

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
    """Return the id of this HTTP request, which the middleware sends back: a clean X-Request-Id, or a new one."""
    value: str | None = getattr(request, "lightcone_request_id", None)
    if value is None:
        value = request.lightcone_request_id = secrets.token_hex(16)
    return value


def client_hints(request: HttpRequest) -> tuple[int, float | None]:
    """Return how often the client has sent this request before, and the seconds that it waits for bytes, for the log.

    The headers are those of Stainless's clients, in Python and TypeScript. Other values count as not sent.
    """
    count = request.headers.get("X-Stainless-Retry-Count", "")
    patience = request.headers.get("X-Stainless-Read-Timeout") or request.headers.get("X-Stainless-Timeout") or ""
    return (
        int(count) if RETRY_COUNT.fullmatch(count) else 0,
        float(patience) if SECONDS.fullmatch(patience) else None,
    )


async def caller_require(request: HttpRequest, dialect: ErrorFormat, right: str | None = None) -> Caller:
    """Return the caller of the request's key.

    Raises ApiError 401, 403 or 429, and 400 for a dialect's header that is out of bounds.
    """
    caller: Caller | None = getattr(request, "lightcone_caller", None)  # known before the body came, or with the batch
    if caller is None:
        try:
            caller = await caller_identify(request, key_header=dialect.key_header, failures=_failures)
        except ApiError as error:
            refusals.note(error.status)
            raise
        request.lightcone_caller = caller
    origin_set(partial(_key_origin, request, caller))
    for name, limit in dialect.header_limits.items():
        if len(request.headers.get(name, "")) > limit:
            message = f"The {name} header has more than {limit} characters; shorten it or leave it out."
            raise ApiError("invalid_value", message, name)
    if right is not None:
        caller.require_right(right)
    return caller


async def admin_require(request: HttpRequest) -> AdminCaller:
    """Return the caller of the request's admin key. Raises ApiError 401, 403 or 429."""
    try:
        caller = await admin_identify(request, failures=_failures)
    except ApiError as error:
        refusals.note(error.status)
        raise
    origin_set(partial(_admin_origin, request, caller))
    return caller


def _admin_origin(request: HttpRequest, caller: AdminCaller) -> Origin:
    """Return the origin of what an admin key does, with the person as whom it acts."""
    source = f"API: {method_name(request)} {request.path}"
    name = f"{caller.key.name} ({caller.person.get_username()})"
    return Origin(
        ActorKind.ADMIN_KEY, caller.key.public_id, name, request_address(request), source, request_id(request)
    )


def _key_origin(request: HttpRequest, caller: Caller) -> Origin:
    """Return the origin of what a request of the API does. Its paths name no secrets."""
    kind = ActorKind.KEY if caller.public_id else ActorKind.NOBODY
    source = f"API: {method_name(request)} {request.path}"
    return Origin(kind, caller.public_id, caller.name, request_address(request), source, request_id(request))


def page_origin(request: HttpRequest) -> Origin:
    """Return the origin of what a request of a page does. Paths of links name secrets, so that none is named."""
    source = "console" if request.path.startswith("/admin/") else "playground"
    place = (request_address(request), source, request_id(request))
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return Origin(ActorKind.NOBODY, "", "", *place)
    return Origin(ActorKind.USER, str(user.pk), user.get_username(), *place)


async def unknown(request: HttpRequest, dialect: ErrorFormat, **_: Any) -> HttpResponseBase:
    """Answer any other path of the API. Without a key nothing is revealed about paths."""
    await caller_require(request, dialect)
    raise ApiError("not_found", f"Unknown request URL: {method_name(request)} {request.path[:200]}.")


def method_name(request: HttpRequest) -> str:
    """Return the method, cut, as a client may send anything."""
    return str(request.method)[:MAX_METHOD_CHARS]


def unknown_view(dialect: ErrorFormat) -> Handler:
    return _answering(dialect, unknown)


# Bodies.


def body_read(request: HttpRequest) -> bytes:
    """Return the body. Raises ApiError for a size or type that is not accepted."""
    body: bytes = request.read()
    if len(body) > settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes:
        raise body_too_large()
    essence = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_json = essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json"))
    if not is_json and not getattr(request, "lightcone_any_type", False):
        raise ApiError("invalid_content_type", "The Content-Type header must be application/json.")
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        message = "The Content-Encoding header must be absent or identity: bodies are not decompressed."
        raise ApiError("invalid_content_type", message)
    return body


def body_too_large() -> ApiError:
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    return ApiError("request_too_large", f"The request body is larger than the limit of {limit} bytes.")


async def object_read(request: HttpRequest) -> dict[str, Any]:
    body = body_read(request)
    return await run_in_thread_if_large(len(body), json_object_read, body)


async def run_in_thread_if_large(num_bytes: int, work: Callable[..., T], *args: Any) -> T:
    """Return `work(*args)`, in a thread if the request is large: others go on meanwhile."""
    if num_bytes <= INLINE_BODY_BYTES:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(_check_threads, work, *args)


def header_text(text: str) -> str:
    """Return a text as a header may hold it: other characters than printable ASCII are percent-encoded."""
    return quote(text, safe=PLAIN + ", /:", errors="replace")


def ignored_line(names: Iterable[str]) -> str:
    """Return names for `IGNORED_HEADER`: at most `MAX_IGNORED_BYTES` of plain characters; "" for none."""
    line = ""
    for name in names:
        word = quote(name[:MAX_IGNORED_NAME_CHARS], safe=PLAIN, errors="replace")
        if len(line) + len(word) + len(MORE) + 2 > MAX_IGNORED_BYTES:
            return line + MORE
        line = f"{line}, {word}" if line else word
    return line
