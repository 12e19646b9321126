"""Read bodies of requests: size, type and JSON, off the loop if they are large."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest

from chat.api.request.strict_json import json_bounds, json_object_read
from chat.errors import ApiError

INLINE_BODY_BYTES = 64 * 1024
T = TypeVar("T")

_check_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="request-check")


def body_read(request: HttpRequest) -> bytes:
    """Return the body. Raises ApiError for a size or type that is not accepted."""
    body: bytes = request.read()
    if len(body) > settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes:
        raise body_too_large()
    _check_content_type(request)
    return body


def body_too_large() -> ApiError:
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    return ApiError("request_too_large", f"The request body is larger than the limit of {limit} bytes.")


def _check_content_type(request: HttpRequest) -> None:
    essence = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if essence != "application/json" and not (essence.startswith("application/") and essence.endswith("+json")):
        raise ApiError("invalid_content_type", "The Content-Type header must be application/json.")
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise ApiError(
            "invalid_content_type",
            "The Content-Encoding header must be absent or identity: bodies are not decompressed.",
        )


def object_parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body. Raises ApiError."""
    return json_object_read(body, json_bounds())


async def object_read(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object of a request that computes nothing. Raises ApiError."""
    body = body_read(request)
    return await run_in_thread_if_large(len(body), object_parse, body)


async def run_in_thread_if_large(num_bytes: int, work: Callable[..., T], *args: Any) -> T:
    """Return `work(*args)` for a request of that size: in a thread if it is large, as other requests go on
    meanwhile.
    """
    if num_bytes <= INLINE_BODY_BYTES:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(_check_threads, work, *args)
