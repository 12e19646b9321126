"""Add what stands beside the body of an answer: request id, CORS and error shape of the API, content policy of pages.

API routes have a handler of their own (`ApiHandler`) instead of settings.MIDDLEWARE: one async function around the
view. No sync code puts a thread between the view and its client's disconnect.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Any

from asgiref.sync import markcoroutinefunction
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.exceptions import DisallowedHost, RequestAborted, RequestDataTooBig
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.urls import Resolver404, ResolverMatch, URLResolver, get_resolver, set_script_prefix

from chat.access.accounts import session_user
from chat.access.addresses import request_address
from chat.api.answering.pipeline import FALLBACK_HEADER, MODEL_HEADER
from chat.api.dialect import ErrorFormat
from chat.api.openai.dialect import LIGHTCONE
from chat.api.registry import DIALECTS, load_named
from chat.api.server_contract import ADMITTED, Admitted, Scope
from chat.api.view import (
    IGNORED_HEADER,
    OPEN_VIEWS,
    VIEWS_WITH_DELETE,
    Handler,
    body_too_large,
    caller_require,
    error_response,
    method_name,
    page_origin,
    request_id,
    run_in_thread_if_large,
    unknown_view,
)
from chat.audit.origin import acting
from chat.errors import ApiError, api_error

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

CLEAN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*", re.ASCII)
MAX_PREFLIGHT_CHARS = 4_096
MAX_KNOWN_PATHS = 128
EXPOSED_HEADERS = ", ".join(
    (
        "x-request-id",
        "retry-after",
        "x-should-retry",
        IGNORED_HEADER.lower(),
        *(MODEL_HEADER.lower(), FALLBACK_HEADER.lower(), "deprecation"),
        *(f"x-ratelimit-{word}-{kind}" for word in ("limit", "remaining", "reset") for kind in ("requests", "tokens")),
    )
)
API_SEGMENTS = frozenset(
    ("health", "version", "files", "batches", *(segment for entry in DIALECTS for segment in entry.segments))
)
"""The first segments of the API's paths."""

PAGE_PATHS = ("/api/schema", "/api/schema/")
"""Pages whose first segment is one of the API's."""
CHAT_FILES_PATH = "/playground/api/files"
"""The only page to which people who are signed in send more than a form."""
FOREIGN_ROUTES = {
    **dict.fromkeys(("/completion", "/infill", "/props", "/slots", "/apply-template"), "llama.cpp's own API"),
    **dict.fromkeys(("/generate", "/info"), "the API of Text Generation Inference"),
    "/metrics": "metrics, which have a port of their own (LIGHTCONE_METRICS_PORT)",
}
"""Paths that clients of other servers request, and the server that has them."""

PAGE_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
CONSOLE_POLICY = PAGE_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'")
"""The policy of the console, whose theme evaluates Alpine expressions and has inline scripts."""
WITHOUT_POLICY = ("text/javascript", "text/css", "font/")
"""Parts of pages, which obey the policy of their page. Without it, a module's headers are half as long."""
COMPRESSED = frozenset(("text/html", "application/vnd.oai.openapi+json"))
"""Kinds of content that go compressed: pages, and the description of the API that one of them reads."""


ERROR_FORMATS: tuple[tuple[str, ErrorFormat], ...] = tuple(
    (prefix, load_named(entry.error_format)) for entry in DIALECTS for prefix in entry.path_prefixes
)
"""From a prefix to the format of errors below it. All others have the shape of the Lightcone dialect."""


def is_api_path(path: str) -> bool:
    """Return True if the path belongs to the API, by its first segment.

    Odd spellings (`//v1`, `/V1`, `/./v1`) and anything that is no path do too, and end as unknown routes.
    """
    if not path.startswith("/"):
        return True
    if path in PAGE_PATHS:
        return False
    segments = (segment.lower() for segment in path.split("/", 8) if segment not in ("", ".", ".."))
    return next(segments, "") in API_SEGMENTS


def dialect_for_path(path: str) -> ErrorFormat:
    return next((format_ for prefix, format_ in ERROR_FORMATS if path.startswith(prefix)), LIGHTCONE)


class ApiMiddleware:
    """The only middleware between the server and an API view."""

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = await self._respond(request)
        _complete(response, request_id(request))
        if ignored := getattr(request, "lightcone_ignored", ""):
            response[IGNORED_HEADER] = ignored
        _allow_origin(request.headers.get("Origin"), response)
        return response

    async def _respond(self, request: HttpRequest) -> HttpResponseBase:
        sent_id = request.headers.get("X-Request-Id")
        if sent_id is not None:
            request.lightcone_request_id = sent_id if CLEAN_ID.fullmatch(sent_id) else secrets.token_hex(16)
        try:
            request.get_host()
            if request.method == "OPTIONS":
                return _preflight(request)
            return await self.get_response(request)
        except DisallowedHost:
            message = "The Host header does not name this server; the operator lists its names in"
            error = ApiError("invalid_host", f"{message} LIGHTCONE_ALLOWED_HOSTS.")
        except Http404:
            return await unknown_view(dialect_for_path(request.path))(request)
        except RequestDataTooBig:
            error = body_too_large()
        except Exception as defect:
            logger.exception("Request %s failed", request_id(request))
            error = api_error(defect)
        return error_response(dialect_for_path(request.path), error, request_id(request))


class ApiHandler(ASGIHandler):
    """Django's ASGI handler with ApiMiddleware alone. Bodies are read into bounded memory, without a thread."""

    def load_middleware(self, is_async: bool = False) -> None:
        """Set the only middleware. Django's own chain stays empty, as this handler does not call it."""
        self.respond = ApiMiddleware(view_call)

    async def handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request as Django's own handler does. A client that leaves cancels the view.

        NOTE: Django's signals of start and end would take a thread and a millisecond. Their receivers close database
        connections; code that uses one here (database_sync_to_async) does so itself.
        """
        try:
            body = await read_bounded(receive, settings.LIGHTCONE_HTTP_LIMITS.body_bytes(scope["path"]))
        except RequestAborted:
            return
        set_script_prefix(get_script_prefix(scope))
        try:
            request = request_of(scope, body)
        except ApiError as refusal:
            await self.send_response(error_response(LIGHTCONE, refusal), send)
            return
        admitted: Admitted | None = scope.get(ADMITTED)
        request.lightcone_caller = admitted.known if admitted is not None else None
        leaving = asyncio.ensure_future(receive())  # after the body nothing comes but the news that the client has left
        answering = asyncio.create_task(self._answer(request, body, send))
        try:
            await asyncio.wait((leaving, answering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            answering.cancel()
            await asyncio.wait((leaving, answering))
        if not answering.cancelled():
            answering.result()

    async def _answer(self, request: ASGIRequest, body: io.BytesIO, send: Send) -> None:
        response = await self.respond(request)
        body.close()  # has been read, and an answer may take minutes
        try:
            await self.send_response(response, send)
        finally:
            response.close()
            request.close()


def request_of(scope: Scope, body: io.BytesIO) -> ASGIRequest:
    """Return the request that the server describes. Raises ApiError if its path or Content-Type cannot be read."""
    try:
        return ASGIRequest(scope, body)
    except UnicodeDecodeError:
        raise ApiError("not_found", "The path is not valid UTF-8.") from None
    except (TypeError, ValueError):
        # What parameters in extended notation (RFC 2231) make Django's reader and Python's raise.
        message = "The Content-Type header has parameters that cannot be read; leave out those with a star."
        raise ApiError("invalid_content_type", message) from None


async def view_call(request: HttpRequest) -> HttpResponseBase:
    """Call the view of the request's path. Raises Resolver404 and whatever the view raises.

    API views are async, answer without templates and report failures themselves; Django's handler would add a log of
    each 4xx.
    """
    match = resolved(get_resolver(), request.path_info)
    response: HttpResponseBase = await match.func(request, *match.args, **match.kwargs)
    return response


@lru_cache(MAX_KNOWN_PATHS)
def resolved(resolver: URLResolver, path: str) -> ResolverMatch:
    """Return the view of a path, of which clients ask few again and again. Raises Resolver404."""
    return resolver.resolve(path)


async def read_bounded(receive: Receive, limit: int) -> io.BytesIO:
    """Return the body, cut off one byte above the limit. Joined once, it is read without another copy."""
    pieces, num_bytes = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        piece = message.get("body", b"")[: limit + 1 - num_bytes]
        pieces.append(piece)
        num_bytes += len(piece)
        if not message.get("more_body", False):
            return io.BytesIO(b"".join(pieces))


def _complete(response: HttpResponseBase, request_id: str) -> None:
    """Add the length, and the id in the headers that OpenAI's and Anthropic's clients read."""
    response["X-Request-Id"] = response["request-id"] = request_id
    response["X-Content-Type-Options"] = "nosniff"
    if isinstance(response, HttpResponse) and response.status_code != 204:
        response["Content-Length"] = str(len(response.content))


def _preflight(request: HttpRequest) -> HttpResponse:
    """Answer a CORS preflight, which needs no key. Requested header names are checked and reflected."""
    response = HttpResponse(status=204)
    del response["Content-Type"]
    deletes = "DELETE, " if _leads_to(VIEWS_WITH_DELETE, request.path_info) else ""
    response["Access-Control-Allow-Methods"] = f"GET, POST, {deletes}OPTIONS"
    asked = request.headers.get("Access-Control-Request-Headers", "").strip()
    if len(asked) <= MAX_PREFLIGHT_CHARS and HEADER_NAMES.fullmatch(asked):
        response["Access-Control-Allow-Headers"] = asked
    response["Access-Control-Max-Age"] = "600"
    return response


def _leads_to(views: set[Handler], path: str) -> bool:
    try:
        return resolved(get_resolver(), path).func in views
    except Resolver404:
        return False


def error_described(path: str, origin: str | None, error: ApiError) -> tuple[dict[str, str], bytes]:
    """Return headers and body of an error of the HTTP server itself, as the API answers on that path."""
    number = error.request_id or secrets.token_hex(16)
    response = error_response(dialect_for_path(path), error, number)
    _complete(response, number)
    if is_api_path(path):
        _allow_origin(origin, response)
    return dict(response.headers), response.content


def _allow_origin(origin: str | None, response: HttpResponseBase) -> None:
    """Name the origin whose pages may read this answer, which varies by origin if there is a list of them."""
    allowed = settings.LIGHTCONE_CORS_ALLOWED_ORIGINS
    if "*" in allowed:
        response["Access-Control-Allow-Origin"] = "*"
    elif allowed:
        response["Vary"] = "Origin"
        if origin is None or origin not in allowed:
            return
        response["Access-Control-Allow-Origin"] = origin
    else:
        return
    response["Access-Control-Expose-Headers"] = EXPOSED_HEADERS


async def body_admit(scope: Scope) -> Admitted:
    """Return the bounds of a body, once the server has its headers. Raises ApiError if the body is not wanted.

    Without a valid key a body is refused before it fills memory; pages and open routes accept that of a form, and from
    people who are signed in a file of a chat. The view finds the caller in the scope.
    """
    request = request_of(scope, io.BytesIO())
    small = Admitted(
        owner=f"address {request_address(request)}", max_body_bytes=settings.LIGHTCONE_HTTP_LIMITS.max_page_body_bytes
    )
    if scope["path"] == CHAT_FILES_PATH and scope["method"] == "POST":
        return await _chat_file_admit(request, small)
    if not is_api_path(scope["path"]) or scope["method"] == "OPTIONS" or _leads_to(OPEN_VIEWS, scope["path"]):
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


async def _chat_file_admit(request: ASGIRequest, small: Admitted) -> Admitted:
    """Return the bounds of a file of a chat. Who is not signed in sends no more than to any page."""
    session_key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not session_key:
        return small
    try:
        user = await database_sync_to_async(session_user)(session_key=session_key, is_use=False)
    except Exception:
        logger.exception("A session could not be looked at before its body")
        return small  # its view fails as well, with an answer and a record
    if not user.is_authenticated:
        return small
    limit = max(settings.LIGHTCONE_LIMITS.max_file_bytes, settings.LIGHTCONE_HTTP_LIMITS.max_page_body_bytes)
    return Admitted(owner=f"account {user.pk}", max_body_bytes=limit, known=user.pk)


class PageMiddleware:
    """Add security headers to pages, which have no inline script; only the console may have any. Compress them.

    A client that is no browser and asks for a missing page took it for a route of an API; it gets an error in JSON.
    """

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self.gzip = GZipMiddleware(get_response)
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        with acting(partial(page_origin, request)):
            response = await self.get_response(request)
        if number := getattr(request, "lightcone_request_id", ""):
            response["X-Request-Id"] = number
        is_described = response.headers.get("Content-Type") == "application/json"
        if response.status_code == 404 and not is_described and not _is_browser(request):
            response = _unknown_route(request)
        if response.headers.get("Content-Type", "").startswith(WITHOUT_POLICY):
            return response
        if "Content-Security-Policy" not in response:
            response["Content-Security-Policy"] = CONSOLE_POLICY if request.path.startswith("/admin/") else PAGE_POLICY
        if "Permissions-Policy" not in response:
            response["Permissions-Policy"] = "camera=(), microphone=(), geolocation=()"
        return await self._compressed(request, response)

    async def _compressed(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return a page compressed if its client accepts that. A stream and what is no page stay as they are."""
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if not isinstance(response, HttpResponse) or kind not in COMPRESSED:
            return response
        return await run_in_thread_if_large(len(response.content), self.gzip.process_response, request, response)


def _is_browser(request: HttpRequest) -> bool:
    """Return True if the client prefers a page to JSON. Browsers say so; programs accept anything."""
    return bool(request.get_preferred_type(["application/json", "text/html"]) == "text/html")


def _unknown_route(request: HttpRequest) -> HttpResponse:
    whose = next((name for route, name in FOREIGN_ROUTES.items() if f"{request.path}/".startswith(f"{route}/")), "")
    hint = f" This is a route of {whose}, and not served here." if whose else ""
    message = (
        f"Unknown request URL: {method_name(request)} {request.path[:200]}.{hint} The API of this server is below "
        f"{request.scheme}://{request.get_host()}/v1, as chat/completions and models; its documentation is at /docs."
    )
    number = request_id(request)
    response = error_response(dialect_for_path(request.path), ApiError("not_found", message), number)
    _complete(response, number)
    _allow_origin(request.headers.get("Origin"), response)
    return response
