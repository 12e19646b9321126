"""From an HTTP request to checked values: key, size, type, JSON, and the checks of its dialect (steps 1 and 2 of completion.py).

What fails here, or in the start of the run that follows, is logged as a request that never became a run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest

from chat.access.addresses import request_address
from chat.access.checks import Right
from chat.access.keys import Caller
from chat.access.permissions import right_require
from chat.api.body import body_read, object_parse, run_in_thread_if_large
from chat.api.dialect import RequestReader
from chat.api.request.ignored import ignored_line
from chat.api.view import caller_require, client_hints, request_id
from chat.errors import ApiError, unforeseen_error
from chat.generation.completions import RequestTrace, limits_look, request_rejected_record
from chat.relay.state.run_id import run_id_create

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that has passed steps 1 and 2. `num_bytes`: of its body; `arrived_at`: unix seconds."""

    caller: Caller
    values: dict[str, Any]
    trace: RequestTrace
    arrived_at: float
    num_bytes: int
    request_id: str


async def request_start(
    request: HttpRequest, dialect: RequestReader, start: Callable[[Accepted], Awaitable[T]]
) -> tuple[Accepted, T]:
    """Steps 1 and 2 of any request that computes, then `start`. A failure of these is logged, and tells what is left of the limits, once
    the caller is known."""
    arrived_at = time.time()
    values: dict[str, Any] = {}
    try:
        caller = await caller_require(request, dialect)
        right_require(caller, str(Right.INFERENCE))
        body = body_read(request)
        values = await run_in_thread_if_large(len(body), _check, body, request, dialect)
        accepted = Accepted(
            caller, values, _trace(request, dialect, values), arrived_at, len(body), request_id(request)
        )
        return accepted, await start(accepted)
    except Exception as error:
        known: Caller | None = getattr(request, "lightcone_caller", None)
        if known is None and isinstance(error, ApiError):
            raise  # whoever has no key writes nothing into the database; such requests are counted (chat.relay.web.refusals)
        rejection_record(error, caller=known, trace=_trace(request, dialect, values), arrived_at=arrived_at)
        if known is not None and not (isinstance(error, ApiError) and error.extra_headers):
            headers = await limits_look(caller=known)
            error_headers_set(request, error, headers)
        raise


def error_headers_set(request: HttpRequest, error: Exception, headers: dict[str, str]) -> None:
    """Let the answer to an error have these headers too, also where it is a defect that no step had foreseen."""
    if isinstance(error, ApiError):
        error.extra_headers = headers | error.extra_headers
    else:
        request.lightcone_headers = headers


def rejection_record(error: Exception, *, caller: Caller | None, trace: RequestTrace, arrived_at: float) -> None:
    """Log a request that never became a run; what is no ApiError is a defect of ours."""
    known = unforeseen_error(error)
    if trace.batch_id and known.kind.should_retry:
        return  # the batch sends it again, as often as it takes
    run_id = run_id_create(at_s=arrived_at)
    request_rejected_record(
        run_id=run_id, caller=caller, trace=trace, status=known.status, code=known.code, arrived_at=arrived_at
    )


def _check(body: bytes, request: HttpRequest, dialect: RequestReader) -> dict[str, Any]:
    values = dialect.read(object_parse(body))
    if values["request_id"] is not None and getattr(request, "lightcone_request_id", None) is None:
        request.lightcone_request_id = values["request_id"]
    line = ignored_line(values["ignored"])
    if line:
        request.lightcone_ignored = line
        logger.info("Request %s: passed over %s", request_id(request), line)
    return values


def _trace(request: HttpRequest, dialect: RequestReader, values: dict[str, Any]) -> RequestTrace:
    """What the log keeps of the call, cut to its limits."""
    size = settings.LIGHTCONE_LOG_FIELD_CHARS
    hints = client_hints(request)
    return RequestTrace(
        dialect=dialect.name,
        route=request.path[:size],
        is_stream=bool(values.get("stream")),
        model_asked=(values.get("model") or "")[:size],
        client_request_id=request_id(request)[:size],
        user_label=(values.get("user") or values.get("safety_identifier") or "")[:size],
        user_agent=request.headers.get("User-Agent", "")[:size],
        address=request_address(request)[:size],
        batch_id=getattr(request, "lightcone_batch_id", ""),
        retry_count=hints.retry_count,
        patience_s=hints.patience_s,
        metadata=values.get("metadata") or {},
    )
