"""Runs of the page over HTTP, where a network lets no socket through: start, read as server-sent events, stop.

A stream has the socket's messages. Those that the run's log holds are numbered from 0 in their `id` lines, the same
each time the run is read, so that a page which has seen N asks for those behind N.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from chat.access.addresses import request_address
from chat.api.answering.streaming import (
    PING,
    EventStreamResponse,
    compact_json,
    data_frame,
    failure_log,
    silence_s,
)
from chat.api.queries import integer_check, query_integer
from chat.api.request.strict_json import json_object_read
from chat.api.view import json_response, run_in_thread_if_large
from chat.conversations.frame import Visit, page_view_async
from chat.conversations.runs import run_name_read
from chat.conversations.schema import page_body
from chat.errors import ApiError
from chat.playground.messages import error_message
from chat.playground.running import (
    GONE_MESSAGE,
    OpenRun,
    Visitor,
    page_trace,
    run_end,
    run_failure,
    run_open,
    run_rejoin,
    run_said,
    visitor_of,
)

PICK_UP_S = 10.0
"""How long a new run is held for the page that reads its events, before it counts as left alone."""


async def start(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Start a run. Its page then reads the events."""
    raw = page_body(request)
    body = await run_in_thread_if_large(len(raw), json_object_read, raw)
    run_name = run_name_read(body.get("id"))
    trace = page_trace(
        route=request.path, user_agent=request.headers.get("User-Agent", ""), address=request_address(request)
    )
    run = await run_open(await _visitor(request, visit), run_name, body.get("request"), trace=trace)
    asyncio.get_running_loop().call_later(PICK_UP_S, run.reader.leave)
    return json_response({"id": run_name}, status=202)


async def events(request: HttpRequest, visit: Visit, run_name: str) -> HttpResponseBase:
    """Stream the messages of a run behind `starting_after` or, of a page that is back, `Last-Event-ID`; then live."""
    after = query_integer(request, "starting_after", -1)
    if last_id := request.headers.get("Last-Event-ID", "").strip():
        after = integer_check("Last-Event-ID", last_id, minimum=-1, maximum=2**53)
    run = await run_rejoin(await _visitor(request, visit), run_name)
    return EventStreamResponse(_frames(run, run_name, after), on_close=run.reader.leave)


async def stop(request: HttpRequest, visit: Visit, run_name: str) -> HttpResponse:
    """Stop a run, whoever reads it; the readers get its end. Raises ApiError for one that is gone."""
    if not await run_end(await _visitor(request, visit), run_name):
        raise ApiError("not_resumable", GONE_MESSAGE)
    return json_response({"id": run_name}, status=202)


async def _frames(run: OpenRun, run_name: str, after: int) -> AsyncIterator[bytes]:
    """Yield the messages as frames, a ping after each silence, and last the error of a run that fails."""
    number, spoke_at = -1, time.monotonic()
    try:
        async for said in run_said(run):
            frames = []
            for message in said.messages:
                number += said.is_logged
                if not said.is_logged or number > after:
                    line = b"id: %d\n" % number if said.is_logged else b""
                    frames.append(line + data_frame(compact_json(message | {"id": run_name})))
            if frames:
                yield b"".join(frames)
            elif not settings.LIGHTCONE_LIMITS.sse_keep_alive or time.monotonic() - spoke_at < silence_s():
                continue
            else:
                yield PING
            spoke_at = time.monotonic()
    except Exception as error:
        failure = run_failure(failure_log(error, "A playground run failed"), run)
        yield data_frame(compact_json(error_message(failure) | {"id": run_name}))


async def _visitor(request: HttpRequest, visit: Visit) -> Visitor:
    return await database_sync_to_async(visitor_of)(await request.auser(), visit.caller)


start_view = page_view_async(post=start)
events_view = page_view_async(get=events)
stop_view = page_view_async(post=stop)
