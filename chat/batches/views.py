"""The routes of `/v1/files` and `/v1/batches`. Only keys of its project see a file or a batch."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from urllib.parse import quote

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat, OpenAIErrorFormat
from chat.api.queries import list_object
from chat.api.request.fields import Integer, Text, field_problems
from chat.api.request.objects import Metadata
from chat.api.view import api_view, caller_require, json_response, object_read
from chat.batches.files import FileAbout, FileWriter, file_begin, file_content, file_delete, file_get, files_page
from chat.batches.models import Batch, ProjectFile, Purpose
from chat.batches.services import ENDPOINTS, WINDOWS, BatchOrder, batch_cancel, batch_create, batch_get, batches_page
from chat.batches.upload import ExpiresAfter, Upload, upload_read, upload_too_large
from chat.errors import problems_error
from chat.relay.commands import batches_wake_async

MAX_ID_CHARS = 64
INSTANTS = (
    *("created_at", "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at"),
    *("cancelling_at", "cancelled_at"),
)


class BatchesFormat(OpenAIErrorFormat):
    name = "batches"


BATCHES = BatchesFormat()


class BatchRequest(serializers.Serializer):
    """The body of `POST /v1/batches`, in the order of the checks."""

    input_file_id = Text("A file of purpose batch.", max_chars=MAX_ID_CHARS, is_filled=True, is_required=True)
    endpoint = Text("The route that all lines are for.", choices=ENDPOINTS, is_required=True)
    completion_window = Text("How long the batch may take.", choices=tuple(WINDOWS), is_required=True)
    metadata = Metadata("Labels that come back with the batch.")
    output_expires_after = ExpiresAfter("How long the files that the batch puts out are kept.")


class FilesQuery(serializers.Serializer):
    purpose = Text(choices=tuple(Purpose.values))
    limit = Integer(minimum=1, maximum=10_000, default=10_000)
    order = Text(choices=("asc", "desc"), default="desc")
    after = Text(max_chars=MAX_ID_CHARS, default="")


class BatchesQuery(serializers.Serializer):
    limit = Integer(minimum=1, maximum=100, default=20)
    after = Text(max_chars=MAX_ID_CHARS, default="")


BATCH_REQUEST, FILES_QUERY, BATCHES_QUERY = BatchRequest(), FilesQuery(), BatchesQuery()


def values_read(schema: serializers.Serializer, data: dict[str, Any]) -> dict[str, Any]:
    """Read the fields of a schema and ignore others. Raises ApiError that names the bad fields."""
    try:
        values: dict[str, Any] = schema.run_validation(data)
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None
    return values


def query_read(schema: serializers.Serializer, request: HttpRequest) -> dict[str, Any]:
    """Read a query string; an empty value counts as absent, and of several the last. Raises ApiError."""
    return values_read(schema, {name: value for name, value in request.GET.items() if value != ""})


async def _caller(request: HttpRequest, dialect: ErrorFormat) -> Caller:
    return await caller_require(request, dialect, str(Right.INFERENCE))


# Files.


async def upload(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await _caller(request, dialect)
    body: bytes = request.read()
    if len(body) > settings.LIGHTCONE_HTTP_LIMITS.body_bytes(request.path):
        raise upload_too_large()
    sent = await asyncio.to_thread(upload_read, body, request.headers.get("Content-Type", ""))
    about = FileAbout(caller.project_id, caller.public_id, sent.filename, sent.purpose, sent.lives_s)
    writer = await database_sync_to_async(file_begin)(about=about, num_bytes=sent.num_bytes)
    return json_response(file_object(await _write(writer, sent)))


async def _write(writer: FileWriter, sent: Upload) -> ProjectFile:
    """Write an upload by pieces, as other requests wait for the same thread. Drop it if the client disconnects."""
    try:
        for piece in sent.pieces:
            await database_sync_to_async(writer.write)(piece)
        return await database_sync_to_async(writer.finish)()
    except BaseException:
        await asyncio.shield(database_sync_to_async(writer.drop)())
        raise


async def files_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await _caller(request, dialect)
    query = query_read(FILES_QUERY, request)
    found, has_more = await database_sync_to_async(files_page)(
        project_id=caller.project_id,
        purpose=query["purpose"] or "",
        limit=query["limit"],
        after=query["after"],
        is_ascending=query["order"] == "asc",
    )
    return json_response(list_object([file_object(file) for file in found], has_more=has_more))


async def file_retrieve(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    return json_response(file_object(await _file(request, dialect, file_id)))


async def file_remove(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    caller = await _caller(request, dialect)
    await database_sync_to_async(file_delete)(project_id=caller.project_id, public_id=file_id)
    return json_response({"id": file_id, "object": "file", "deleted": True})


async def file_download(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    file = await _file(request, dialect, file_id)
    response = StreamingHttpResponse(file_content(file_pk=file.pk), content_type="application/octet-stream")
    response["Content-Length"] = str(file.num_bytes)
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}"
    response["Cache-Control"] = "no-store"
    return response


async def _file(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> ProjectFile:
    caller = await _caller(request, dialect)
    return await database_sync_to_async(file_get)(project_id=caller.project_id, public_id=file_id)


# Batches.


async def batch_order(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await _caller(request, dialect)
    values = values_read(BATCH_REQUEST, await object_read(request))
    lives_s = values.pop("output_expires_after")
    order = BatchOrder(caller.project_id, caller.public_id, output_expires_s=lives_s, **values)
    made = await database_sync_to_async(batch_create)(order=order)
    await batches_wake_async()
    return json_response(batch_object(made))


async def batches_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await _caller(request, dialect)
    query = query_read(BATCHES_QUERY, request)
    found, has_more = await database_sync_to_async(batches_page)(project_id=caller.project_id, **query)
    return json_response(list_object([batch_object(batch) for batch in found], has_more=has_more))


async def batch_retrieve(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> HttpResponseBase:
    return json_response(batch_object(await _batch(request, dialect, batch_id)))


async def batch_stop(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> HttpResponseBase:
    cancelled = await database_sync_to_async(batch_cancel)(batch=await _batch(request, dialect, batch_id))
    await batches_wake_async()
    return json_response(batch_object(cancelled))


async def _batch(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> Batch:
    caller = await _caller(request, dialect)
    return await database_sync_to_async(batch_get)(project_id=caller.project_id, public_id=batch_id)


# Their JSON.


def file_object(file: ProjectFile) -> dict[str, Any]:
    return {
        "id": file.public_id,
        "object": "file",
        "bytes": file.num_bytes,
        "created_at": _seconds(file.created_at),
        "expires_at": _seconds(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    """Return the JSON object of a batch. It names files once they are complete, and usage once there is some."""
    return {
        "id": batch.public_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model or None,
        "errors": {"object": "list", "data": batch.errors} if batch.errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": None if batch.is_open else batch.output_file_id or None,
        "error_file_id": None if batch.is_open else batch.error_file_id or None,
        **{name: _seconds(getattr(batch, name)) for name in INSTANTS},
        "request_counts": {"total": batch.num_lines, "completed": batch.num_completed, "failed": batch.num_failed},
        "usage": _usage(batch),
        "metadata": batch.metadata,
    }


def _usage(batch: Batch) -> dict[str, Any] | None:
    if not batch.prompt_tokens:
        return None
    return {
        "input_tokens": batch.prompt_tokens,
        "input_tokens_details": {"cached_tokens": batch.cached_tokens},
        "output_tokens": batch.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
        "total_tokens": batch.prompt_tokens + batch.completion_tokens,
    }


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


files = api_view(BATCHES, get=files_list, post=upload)
file = api_view(BATCHES, get=file_retrieve, delete=file_remove)
content = api_view(BATCHES, get=file_download)
batches = api_view(BATCHES, get=batches_list, post=batch_order)
batch = api_view(BATCHES, get=batch_retrieve)
cancellation = api_view(BATCHES, post=batch_stop)
