"""The routes of `/v1/files`: upload, list, retrieve, content, delete. Only keys of its project see a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from chat.access.checks import Right
from chat.api.dialect import ErrorFormat
from chat.api.view import api_view, caller_require, json_response
from chat.batches.files import (
    FileAbout,
    FileInUse,
    FileMissing,
    FileWriter,
    QuotaExceeded,
    file_begin,
    file_chunk,
    file_delete,
    file_get,
    files_page,
)
from chat.batches.models import ProjectFile
from chat.batches.objects import BATCHES, file_object, page_object
from chat.batches.queries import FILES_QUERY, query_read
from chat.batches.upload import Upload, upload_read, upload_too_large
from chat.errors import ApiError


async def upload(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    body: bytes = request.read()
    if len(body) > settings.LIGHTCONE_HTTP_LIMITS.body_bytes(request.path):
        raise upload_too_large()
    sent = await asyncio.to_thread(upload_read, body, request.headers.get("Content-Type", ""))
    about = FileAbout(caller.project_id, caller.public_id, sent.filename, sent.purpose, sent.lives_s)
    try:
        writer = await database_sync_to_async(file_begin)(about=about, num_bytes=sent.num_bytes)
    except QuotaExceeded:
        message = (
            f"A project may have {settings.LIGHTCONE_MAX_PROJECT_FILES} files, "
            f"of {settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES} bytes together, and this one does not fit; "
            "delete files that are not needed."
        )
        raise ApiError("insufficient_quota", message, "file") from None
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
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    query = query_read(request, FILES_QUERY)
    try:
        files, has_more = await database_sync_to_async(files_page)(
            project_id=caller.project_id,
            purpose=query["purpose"] or "",
            limit=query["limit"],
            after=query["after"],
            is_ascending=query["order"] == "asc",
        )
    except FileMissing:
        raise ApiError("invalid_value", "after must be the id of a file of this project", "after") from None
    return json_response(page_object([file_object(file) for file in files], has_more=has_more))


async def file_retrieve(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    return json_response(file_object(await _file(request, dialect, file_id)))


async def file_remove(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    try:
        await database_sync_to_async(file_delete)(project_id=caller.project_id, public_id=file_id)
    except FileMissing:
        raise file_unknown(file_id) from None
    except FileInUse as error:
        message = f"The file is the input of {error}, which is not finished; cancel that batch first."
        raise ApiError("invalid_value", message, "file_id") from None
    return json_response({"id": file_id, "object": "file", "deleted": True})


async def file_content(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> HttpResponseBase:
    file = await _file(request, dialect, file_id)
    response = StreamingHttpResponse(_content(file), content_type="application/octet-stream")
    response["Content-Length"] = str(file.num_bytes)
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}"
    response["Cache-Control"] = "no-store"
    return response


async def _content(file: ProjectFile) -> AsyncIterator[bytes]:
    number = 0
    while (chunk := await database_sync_to_async(file_chunk)(file_pk=file.pk, number=number)) is not None:
        yield chunk
        number += 1


async def _file(request: HttpRequest, dialect: ErrorFormat, file_id: str) -> ProjectFile:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    try:
        return await database_sync_to_async(file_get)(project_id=caller.project_id, public_id=file_id)
    except FileMissing:
        raise file_unknown(file_id) from None


def file_unknown(file_id: str, param: str = "file_id") -> ApiError:
    """Return the error for a file that does not exist or belongs to another project."""
    return ApiError("not_found", f"No such File object: {file_id[:64]}", param)


files = api_view(BATCHES, get=files_list, post=upload)
file = api_view(BATCHES, get=file_retrieve, delete=file_remove)
content = api_view(BATCHES, get=file_content)
