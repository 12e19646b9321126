"""Answer one line of a batch by the view of its endpoint, with the same checks, answers and errors as over HTTP.

Three things differ: the caller is known already; the request queues behind all others and leaves half of the key's
concurrency to them; and its record names the batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import orjson
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import resolve

from chat.access.authentication import configuration_refresh
from chat.access.keys import Caller
from chat.api.registry import batch_endpoints
from chat.api.request.build import LATER
from chat.api.view import request_id
from chat.batches.input_lines import InputLine
from chat.batches.services import Tokens

View = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

RETRIED_STATUSES = (429, 503)
TRIES = 3
"""Tries of a line whose run failed: its worker died, or it ran out of time."""
WAITING_CODE = "model_load_failed"
"""A code that clients should not retry at once. A batch has time to wait until the operator repairs the model."""
FLEETING_CODES = ("worker_lost", "inference_timeout")
MAX_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The answer of the route to one line."""

    status: int
    request_id: str
    body: bytes
    """JSON."""
    wait_s: float | None = None
    """Seconds until the request should be sent again. None: the answer is final."""
    is_fleeting: bool = False
    """True if the run failed in a way that a few more tries may mend."""

    @property
    def is_error(self) -> bool:
        return self.status >= 400


def endpoint_view(endpoint: str) -> View:
    """Return the view of an endpoint, which loads its dialect. Raises KeyError."""
    view: View = resolve(endpoint, urlconf=batch_endpoints()[endpoint]).func
    return view


async def line_answer(line: InputLine, *, endpoint: str, view: View, caller: Caller, batch_id: str) -> LineAnswer:
    """Send the line once and wait for its answer. Cancelling ends the run."""
    await configuration_refresh()
    request = _request(line.body, endpoint)
    request.lightcone_caller = _in_background(caller)
    request.lightcone_batch_id = batch_id
    response = await view(request)
    if not isinstance(response, HttpResponse):
        raise TypeError(f"{endpoint} answered a line of a batch with a stream")
    return _answer(response, request_id(request))


def _in_background(caller: Caller) -> Caller:
    """Return the caller with the share of its key's concurrency that background work has, counted over all its runs."""
    limits = replace(caller.limits, max_concurrency=caller.limits.live_share)
    return replace(caller, min_priority=max(LATER, caller.min_priority), limits=limits)


def _request(body: bytes, endpoint: str) -> HttpRequest:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": endpoint, "query_string": b"", "headers": headers}
    return ASGIRequest(scope, BytesIO(body))


def _answer(response: HttpResponse, sent_id: str) -> LineAnswer:
    status, body = response.status_code, response.content
    code = _error_code(body) if status >= 400 else ""
    is_fleeting = code in FLEETING_CODES
    is_again = (
        status in RETRIED_STATUSES
        and response.headers.get("x-should-retry") == "true"
        or is_fleeting
        or code == WAITING_CODE
    )
    usual_s = str(MAX_WAIT_S) if code == WAITING_CODE else "1"
    wait_s = min(MAX_WAIT_S, max(1.0, float(response.headers.get("Retry-After", usual_s)))) if is_again else None
    return LineAnswer(status, sent_id, body, wait_s, is_fleeting)


def _error_code(body: bytes) -> str:
    error = orjson.loads(body).get("error")
    return str(error.get("code")) if isinstance(error, dict) else ""


def result_text(line: InputLine, answer: LineAnswer) -> str:
    """Return the line of the output file or the error file."""
    head = orjson.dumps({"id": _own_id(), "custom_id": line.custom_id})[:-1]
    response = orjson.dumps({"status_code": answer.status, "request_id": answer.request_id})[:-1]
    return (head + b',"response":' + response + b',"body":' + answer.body.strip() + b'},"error":null}').decode()


def unanswered_text(custom_id: str, code: str, message: str) -> str:
    """Return the line of the error file for a request without an answer."""
    error = {"code": code, "message": message}
    return orjson.dumps({"id": _own_id(), "custom_id": custom_id, "response": None, "error": error}).decode()


def _own_id() -> str:
    return f"batch_req_{secrets.token_hex(16)}"


def tokens_of(body: bytes) -> Tokens:
    """Return the usage in an answer, of completions' or responses' shape; zeros without any."""
    usage = orjson.loads(body).get("usage")
    if not isinstance(usage, dict):
        return Tokens()
    prompt = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    output = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return Tokens(
        prompt=_count(usage, "prompt_tokens", "input_tokens"),
        cached=_count(prompt, "cached_tokens"),
        completion=_count(usage, "completion_tokens", "output_tokens"),
        reasoning=_count(output, "reasoning_tokens"),
    )


def _count(usage: dict[str, Any], *names: str) -> int:
    return next((int(usage[name]) for name in names if usage.get(name)), 0)
