"""The routes of `/v1/batches`: create, list, retrieve, cancel. `work.py` answers the requests of a batch."""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.request.fields import Text, field_problems
from chat.api.request.objects import Metadata
from chat.api.view import api_view, caller_require, json_response, object_read
from chat.batches.file_views import file_unknown
from chat.batches.files import FileMissing, file_get
from chat.batches.models import Batch, ProjectFile, Purpose
from chat.batches.objects import BATCHES, batch_object, page_object
from chat.batches.queries import BATCHES_QUERY, MAX_ID_CHARS, query_read
from chat.batches.services import (
    ENDPOINTS,
    WINDOWS,
    BatchMissing,
    BatchOrder,
    BatchOver,
    TooManyBatches,
    batch_cancel,
    batch_create,
    batch_get,
    batches_page,
)
from chat.batches.upload import ExpiresAfter
from chat.errors import ApiError, problems_error
from chat.relay.commands import batches_wake_async


class BatchRequest(serializers.Serializer):
    """The body of `POST /v1/batches`, in the order of the checks."""

    input_file_id = Text(
        max_chars=MAX_ID_CHARS, is_filled=True, is_required=True, nullable=False, help_text="A file of purpose batch."
    )
    endpoint = Text(choices=ENDPOINTS, is_required=True, nullable=False, help_text="The route that all lines are for.")
    completion_window = Text(
        choices=tuple(WINDOWS), is_required=True, nullable=False, help_text="How long the batch may take."
    )
    metadata = Metadata(help_text="Labels that come back with the batch.")
    output_expires_after = ExpiresAfter(help_text="How long the files that the batch puts out are kept.")


_SCHEMA = BatchRequest()


async def create(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    values = _values(await object_read(request))
    try:
        file = await database_sync_to_async(file_get)(project_id=caller.project_id, public_id=values["input_file_id"])
        _check_file(file)
        batch = await database_sync_to_async(batch_create)(order=_order(values, caller))
    except FileMissing:
        raise file_unknown(values["input_file_id"], "input_file_id") from None
    except TooManyBatches:
        limit = settings.LIGHTCONE_MAX_OPEN_BATCHES
        message = (
            f"This project has {limit} batches that are not finished, as many as it may; "
            "wait for one to end, or cancel one."
        )
        raise ApiError("insufficient_quota", message) from None
    await batches_wake_async()
    return json_response(batch_object(batch))


async def batches_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    query = query_read(request, BATCHES_QUERY)
    try:
        batches, has_more = await database_sync_to_async(batches_page)(
            project_id=caller.project_id, limit=query["limit"], after=query["after"]
        )
    except BatchMissing:
        raise ApiError("invalid_value", "after must be the id of a batch of this project", "after") from None
    return json_response(page_object([batch_object(batch) for batch in batches], has_more=has_more))


async def retrieve(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> HttpResponseBase:
    return json_response(batch_object(await _batch(request, dialect, batch_id)))


async def cancel(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> HttpResponseBase:
    batch = await _batch(request, dialect, batch_id)
    try:
        batch = await database_sync_to_async(batch_cancel)(batch=batch)
    except BatchOver as error:
        raise ApiError(
            "invalid_value", f"The batch cannot be cancelled any more: its status is {error}.", "batch_id"
        ) from None
    await batches_wake_async()
    return json_response(batch_object(batch))


async def _batch(request: HttpRequest, dialect: ErrorFormat, batch_id: str) -> Batch:
    """Return the error for a batch that does not exist or belongs to another project."""
    caller = await caller_require(request, dialect, str(Right.INFERENCE))
    try:
        return await database_sync_to_async(batch_get)(project_id=caller.project_id, public_id=batch_id)
    except BatchMissing:
        raise ApiError("not_found", f"No batch found with id '{batch_id[:MAX_ID_CHARS]}'.", "batch_id") from None


def _values(parsed: dict[str, Any]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = _SCHEMA.run_validation(parsed)
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None
    return values


def _check_file(file: ProjectFile) -> None:
    if file.purpose != Purpose.BATCH:
        message = f"input_file_id must be a file of purpose batch; {file.public_id} has purpose {file.purpose}"
        raise ApiError("invalid_value", message, "input_file_id")


def _order(values: dict[str, Any], caller: Caller) -> BatchOrder:
    return BatchOrder(
        project_id=caller.project_id,
        key_public_id=caller.public_id,
        endpoint=values["endpoint"],
        input_file_id=values["input_file_id"],
        completion_window=values["completion_window"],
        metadata=values["metadata"],
        output_expires_s=values["output_expires_after"],
    )


batches = api_view(BATCHES, get=batches_list, post=create)
batch = api_view(BATCHES, get=retrieve)
cancellation = api_view(BATCHES, post=cancel)
