"""Fetch chat completions again: stored ones, and those of resumable requests, whole or as a resumed stream."""

from __future__ import annotations

import re
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.http import HttpRequest, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.storage import answer_stored, run_rejoin
from chat.api.answering.streaming import EventStreamResponse, RunFrames, answer_collect, frames_sent
from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.numbered import NumberedStream
from chat.api.chat_format.stored import ID_PREFIX, kept_read
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import ErrorFormat
from chat.api.queries import after_unknown, integer_check, list_object, page_read, query_integer
from chat.api.request.fields import field_read
from chat.api.request.objects import Metadata
from chat.api.stored.services import (
    AnswerUnknown,
    StoredAnswer,
    StoredKind,
    StoredState,
    answer_delete,
    answer_label,
    answers_page,
)
from chat.api.view import caller_require, json_response, object_read, run_in_thread_if_large
from chat.errors import ApiError
from chat.generation.completions import run_find_public
from engine.api import EngineError

LABEL_QUERY = re.compile(r"metadata\[(.{1,64})\]", re.DOTALL)
METADATA = Metadata(nullable=False)


async def completions_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """List stored completions, the oldest first by default, filtered by model and labels."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    page = page_read(request)
    labels = {match[1]: value for name, value in request.GET.items() if (match := LABEL_QUERY.fullmatch(name))}
    try:
        rows, has_more = await database_sync_to_async(answers_page)(
            project_id=caller.project_id,
            kind=StoredKind.CHAT,
            after=page.after,
            limit=page.limit,
            is_ascending=page.is_ascending,
            model=request.GET.get("model", ""),
            metadata=labels,
        )
    except AnswerUnknown:
        raise after_unknown(page.after) from None
    num_bytes = sum(len(row.answer) for row in rows)
    return await run_in_thread_if_large(
        num_bytes, lambda: json_response(list_object([_stored_object(row) for row in rows], has_more=has_more))
    )


async def completion_retrieve(request: HttpRequest, dialect: ErrorFormat, completion_id: str) -> HttpResponseBase:
    """Answer with the later of two: the stored completion, or that of a resumable request, for whose end it waits."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    row = await answer_stored(completion_id, kind=str(StoredKind.CHAT), caller=caller)
    is_whole = row is not None and row.state == StoredState.FINISHED
    try:
        found = await run_find_public(public_id=_public_id(completion_id), caller=caller)
    except EngineError:
        if not is_whole:
            raise
        found = None
    if row is not None and is_whole and (found is None or row.run_id.hex >= found[0]):
        return json_response(_stored_object(row))
    if found is None:
        raise _unknown(completion_id)
    return json_response(await _collected(*found, completion_id, caller))


async def _collected(run_id: str, kept: bytes, completion_id: str, caller: Caller) -> bytes:
    head, _ = kept_read(kept)
    rejoined = await run_rejoin(run_id, caller)
    if rejoined is None:
        raise _unknown(completion_id)
    reader, admitted = rejoined
    try:
        return await answer_collect(reader, ChatAnswer(head.admitted(admitted)))
    finally:
        reader.leave()


async def completion_events(request: HttpRequest, dialect: ErrorFormat, completion_id: str) -> HttpResponseBase:
    """Stream the chunks behind `starting_after`, or the `Last-Event-ID` of a reader that reconnects; then live."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    after = query_integer(request, "starting_after", -1)
    last_id = request.headers.get("Last-Event-ID", "").strip()
    if last_id:
        after = integer_check("Last-Event-ID", last_id, minimum=-1, maximum=2**53)
    found = await run_find_public(public_id=_public_id(completion_id), caller=caller)
    rejoined = await run_rejoin(found[0], caller) if found is not None else None
    if found is None or rejoined is None:
        message = (
            f"The chat completion '{completion_id[:200]}' cannot be picked up: there is none, its request was not "
            "resumable, or it ended too long ago; send the request again."
        )
        raise ApiError("not_resumable", message)
    reader, admitted = rejoined
    head, framing = kept_read(found[1])
    writer = NumberedStream(ChatStream(head.admitted(admitted), framing), after=after, has_ids=True)
    return EventStreamResponse(frames_sent(RunFrames(reader, writer, admitted)), on_close=reader.leave)


async def completion_update(request: HttpRequest, dialect: ErrorFormat, completion_id: str) -> HttpResponseBase:
    """Replace the labels; nothing else can be changed."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    body = await object_read(request)
    if body.get("metadata") is None:
        message = "metadata is required: an object of labels, which replace those there are"
        raise ApiError("missing_required_parameter", message, "metadata")
    labels = field_read("metadata", METADATA.run_validation, body["metadata"])
    known = await answer_stored(completion_id, kind=str(StoredKind.CHAT), caller=caller)
    if known is None or known.state != StoredState.FINISHED:
        raise _unknown(completion_id)
    try:
        row = await database_sync_to_async(answer_label)(
            project_id=caller.project_id, kind=StoredKind.CHAT, public_id=completion_id, metadata=labels
        )
    except AnswerUnknown:
        raise _unknown(completion_id) from None
    return json_response(_stored_object(row))


async def completion_delete(request: HttpRequest, dialect: ErrorFormat, completion_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    try:
        await database_sync_to_async(answer_delete)(
            project_id=caller.project_id, kind=StoredKind.CHAT, public_id=completion_id
        )
    except AnswerUnknown:
        raise _unknown(completion_id) from None
    return json_response({"object": "chat.completion.deleted", "id": completion_id, "deleted": True})


async def completion_messages(request: HttpRequest, dialect: ErrorFormat, completion_id: str) -> HttpResponseBase:
    """List the messages that a stored completion answers, as they were sent."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    page = page_read(request)
    row = await answer_stored(completion_id, kind=str(StoredKind.CHAT), caller=caller)
    if row is None:
        raise _unknown(completion_id)
    asked = (await run_in_thread_if_large(len(row.request), orjson.loads, row.request))["messages"]
    messages = [_message(message, f"{completion_id}-{index}") for index, message in enumerate(asked)]
    return json_response(page.listed(messages if page.is_ascending else messages[::-1]))


def _message(message: dict[str, Any], message_id: str) -> dict[str, Any]:
    """Return a message of the list. Content in parts stands beside a content of null."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return {**message, "id": message_id, "content": None if parts is not None else content, "content_parts": parts}


def _stored_object(row: StoredAnswer) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(row.answer)
    return {**body, "metadata": row.metadata}


def _public_id(completion_id: str) -> str:
    return completion_id.removeprefix(ID_PREFIX)


def _unknown(completion_id: str) -> ApiError:
    """Return the same error for a completion that never was, that is gone, and that is another project's."""
    return ApiError("not_found", f"The chat completion '{completion_id[:200]}' does not exist, or not any more.")
