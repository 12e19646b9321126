"""Handlers of the Responses API."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted, StartedRun, request_start, run_start
from chat.api.answering.storage import answer_stored, keeping_refusal, keeps_answer, run_rejoin
from chat.api.answering.streaming import EventStreamResponse, RunFrames, frames_sent, prompt_read, run_answer
from chat.api.queries import page_read, query_boolean, query_integer
from chat.api.request.fields import bad_value
from chat.api.responses.dialect import InputTokens, Responses
from chat.api.responses.history import history_add
from chat.api.responses.kept import background_policy, kept_head, response_keep, response_refresh, unfinished_object
from chat.api.responses.schema import ParsedResponse
from chat.api.responses.stream import ResponseStream
from chat.api.responses.truncation import messages_fit
from chat.api.stored.services import AnswerUnknown, StoredAnswer, StoredKind, StoredState, answer_delete
from chat.api.view import caller_require, json_response, run_in_thread_if_large
from chat.errors import ApiError, engine_api_error
from chat.generation.completions import run_attach, run_find, run_stop
from engine.api import Admitted, EngineError, Failed, Rejected

ADMISSION_S = 1.0
"""The wait for the admission of a background request, so that a refusal can have a status."""
STOP_S = 3.0


async def create(request: HttpRequest, dialect: Responses) -> HttpResponseBase:
    _, (accepted, run) = await request_start(request, dialect, _start)
    parsed = accepted.parsed
    if parsed.is_background and not parsed.response.stream:
        return await _background(request, accepted, run)
    keep = response_keep(accepted, run) if parsed.delivery.store else None
    try:
        return await run_answer(request, dialect, accepted, run, keep=keep)
    except (ApiError, EngineError):
        if parsed.is_background:
            await _give_up(accepted, run)
        raise


async def _give_up(accepted: Accepted[ParsedResponse], run: StartedRun) -> None:
    """End the run and keep nothing: a client that is refused by status knows no id."""
    await _forget(run.head.echo_fields["id"], accepted.caller)
    with suppress(EngineError):  # the deadline ends it all the same
        await run_stop(run_id=run.generation.run_id)


async def _start(accepted: Accepted[ParsedResponse]) -> tuple[Accepted[ParsedResponse], StartedRun]:
    """Add the history, decide whether the response is kept, drop what does not fit, and start the run.

    In the background the run has a row in the store first.
    """
    accepted = await history_add(accepted)
    keeps = keeps_answer(accepted.parsed)
    refusal = await keeping_refusal(accepted.caller.project_id) if keeps else None
    parsed = await run_in_thread_if_large(accepted.num_bytes, _with_store, accepted.parsed, refusal)
    accepted = replace(accepted, parsed=parsed)
    if parsed.truncates:
        accepted = await messages_fit(accepted)
    if not parsed.is_background:
        return accepted, await run_start(accepted)
    run = await run_start(accepted, detach=background_policy)
    try:
        if not await response_keep(accepted, run).begin(run.head):
            await run.reader.stop()
            raise ApiError("overloaded", "The response cannot be kept at the moment; please try again.")
    except BaseException:
        run.reader.leave()
        raise
    return accepted, run


def _with_store(parsed: ParsedResponse, refusal: ApiError | None) -> ParsedResponse:
    """Return the request with `store` settled.

    Raises ApiError if it insists on what cannot be kept, as for `refusal`.
    """
    limit = settings.LIGHTCONE_LIMITS.max_stored_bytes
    store, insists = bool(parsed.delivery.store), bool(parsed.insists_on_store or parsed.is_background)
    if parsed.is_background and parsed.insists_on_store is False:
        raise bad_value("background", "needs store: true, as the response is fetched from the store")
    if not settings.LIGHTCONE_STORE:
        if parsed.is_background:
            raise bad_value("background", "cannot be true: this server keeps no answers", "unsupported_parameter")
        store = False
    elif refusal is not None:
        if insists:
            raise refusal
        store = False
    elif store and len(orjson.dumps(parsed.items)) > limit:
        if insists:
            raise bad_value("store", f"cannot be true for more than {limit} bytes of items; send less, or store: false")
        store = False
    echo_fields = {**parsed.response.echo_fields, "store": store}
    return replace(
        parsed,
        response=replace(parsed.response, echo_fields=echo_fields),
        delivery=replace(parsed.delivery, store=store),
    )


async def _background(request: HttpRequest, accepted: Accepted[ParsedResponse], run: StartedRun) -> HttpResponseBase:
    """Answer with the response as it is after a moment: refused, in progress, or still in the queue."""
    reader = run.reader
    request.lightcone_headers = reader.headers
    try:
        event = await reader.next(ADMISSION_S)
        payload = None if event is None else event.payload
        if isinstance(payload, Rejected | Failed):
            await _give_up(accepted, run)
            raise engine_api_error(EngineError(payload.code, payload.message, payload.param))
        return json_response(
            unfinished_object(run.head, is_queued=not isinstance(payload, Admitted)), headers=reader.headers
        )
    finally:
        reader.leave()


async def _forget(response_id: str, caller: Caller) -> None:
    with suppress(AnswerUnknown):  # somebody else was faster
        await database_sync_to_async(answer_delete)(
            project_id=caller.project_id, kind=StoredKind.RESPONSE, public_id=response_id
        )


async def retrieve(request: HttpRequest, dialect: Responses, response_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    if query_boolean(request, "stream"):
        return await _stream_again(request, caller, response_id)
    return json_response(await _shown(await _find(response_id, caller)))


async def _shown(row: StoredAnswer) -> bytes | dict[str, Any]:
    row = await response_refresh(row)
    if row.state != StoredState.UNFINISHED:
        return bytes(row.answer)
    found = await run_find(run_id=row.run_id.hex)
    is_queued = found is not None and found.state == "queued"
    return unfinished_object(await run_in_thread_if_large(len(row.request), kept_head, row), is_queued=is_queued)


async def _stream_again(request: HttpRequest, caller: Caller, response_id: str) -> HttpResponseBase:
    """Stream the events of a response again, those behind `starting_after`, then live."""
    after = query_integer(request, "starting_after", -1)
    row = await _find(response_id, caller)
    head = await run_in_thread_if_large(len(row.request), kept_head, row)
    rejoined = await run_rejoin(row.run_id.hex, caller)
    if rejoined is None:
        message = "The events of this response are not kept any more; fetch it without stream."
        raise ApiError("not_resumable", message, "stream")
    reader, admitted = rejoined
    writer = ResponseStream(head.admitted(admitted), after=after)
    return EventStreamResponse(frames_sent(RunFrames(reader, writer, admitted)), on_close=reader.leave)


async def cancel(request: HttpRequest, dialect: Responses, response_id: str) -> HttpResponseBase:
    """End a background response. Answer with one that has ended as it is."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    row = await _find(response_id, caller)
    if not (await run_in_thread_if_large(len(row.request), kept_head, row)).echo_fields["background"]:
        message = "Only a response of background: true can be cancelled; others end when their client leaves."
        raise ApiError("invalid_value", message, "id")
    if row.state == StoredState.UNFINISHED:
        await _stop(row, caller)
    return json_response(await _shown(await _find(response_id, caller)))


async def _stop(row: StoredAnswer, caller: Caller) -> None:
    """Stop the run and wait a little for its end. A late worker still ends it."""
    attached = await run_attach(run_id=row.run_id.hex, caller=caller)
    await run_stop(run_id=row.run_id.hex)
    if attached is None:
        return
    reader, _ = attached
    try:
        deadline = time.monotonic() + STOP_S
        while (left_s := deadline - time.monotonic()) > 0:
            event = await reader.next(left_s)
            if event is None or event.is_terminal:
                return
    finally:
        reader.leave()


async def delete(request: HttpRequest, dialect: Responses, response_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    row = await _find(response_id, caller)
    if row.state == StoredState.UNFINISHED:
        # NOTE: first, as one that is forgotten could not be stopped any more where this fails.
        await run_stop(run_id=row.run_id.hex)
    await _forget(response_id, caller)
    return json_response({"id": response_id, "object": "response.deleted", "deleted": True})


async def input_items(request: HttpRequest, dialect: Responses, response_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    page = page_read(request, default_order="desc")
    row = await _find(response_id, caller)
    items: list[dict[str, Any]] = (await run_in_thread_if_large(len(row.request), orjson.loads, row.request))["items"]
    return json_response(page.listed(items if page.is_ascending else items[::-1]))


async def input_tokens(request: HttpRequest, dialect: InputTokens) -> HttpResponseBase:
    read = await prompt_read(request, dialect, start=_start_reading)
    return json_response(
        {"object": "response.input_tokens", "input_tokens": read.admitted.num_prompt_tokens}, headers=read.headers
    )


async def _start_reading(accepted: Accepted[ParsedResponse]) -> StartedRun:
    return await run_start(await history_add(accepted))


async def _find(response_id: str, caller: Caller) -> StoredAnswer:
    """Return a stored response. Raises the same ApiError for one that does not exist and for one of another project."""
    row = await answer_stored(response_id, kind=str(StoredKind.RESPONSE), caller=caller)
    if row is None:
        raise ApiError("not_found", f"Response with id '{response_id[:200]}' not found.")
    return row
