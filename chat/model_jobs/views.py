"""The routes of `/v1/admin/models` and `/v1/admin/jobs`, for keys with the right `models_manage`."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from typing import Any

from channels.db import database_sync_to_async
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase
from rest_framework import serializers

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.bodies import values_sent
from chat.api.dialect import ErrorFormat, OpenAIErrorFormat
from chat.api.queries import list_object, query_integer
from chat.api.request.fields import Array, Boolean, Integer, Object, Text, bad_value, text_read
from chat.api.request.schema import sampling_defaults_read
from chat.api.view import api_view, caller_require, json_response
from chat.catalog import acts
from chat.catalog.models import ServedModel
from chat.catalog.named_models import models_live
from chat.catalog.removal import ModelUnknown, model_remove
from chat.catalog.services import model_update
from chat.catalog.stored_models import stored_manifest, stored_model_offer
from chat.errors import ApiError
from chat.model_jobs.models import JobKind, ModelJob
from chat.model_jobs.services import job_cancel, job_create, job_get, jobs_list, store
from chat.model_store.errors import StoreError
from chat.model_store.manifest import MAX_NAME_CHARS, Manifest
from chat.relay.state.workers import UNLOADED, ModelCondition

MAX_PATH_CHARS = 1024
MAX_JOBS_LISTED = 1000
MAX_TEXT_BYTES = 1 << 20


class AdminFormat(OpenAIErrorFormat):
    name = "models_manage"


ADMIN = AdminFormat()


class PullRequest(serializers.Serializer):
    """The body of `POST /v1/admin/models/pull`."""

    model = Text(
        "OWNER/NAME or OWNER/NAME:FORMAT of the hub.",
        max_chars=MAX_PATH_CHARS,
        is_label=True,
        is_filled=True,
        is_required=True,
    )
    revision = Text("A branch, tag or commit.", max_chars=200, default="main")
    name = Text("The name to store it under, else NAME:FORMAT.", max_chars=MAX_NAME_CHARS, is_label=True, default="")


class ImportRequest(serializers.Serializer):
    """The body of `POST /v1/admin/models/import`."""

    path = Text(
        "A file or folder of the server's machine.",
        max_chars=MAX_PATH_CHARS,
        is_label=True,
        is_filled=True,
        is_required=True,
    )
    name = Text("The name to store it under; for a single model.", max_chars=MAX_NAME_CHARS, is_label=True, default="")


class ModelRequest(serializers.Serializer):
    """The body of `POST /v1/admin/models/load`, `unload` and `check`."""

    model = Text("The model's name.", max_chars=MAX_NAME_CHARS, is_label=True, is_filled=True, is_required=True)


class CopyRequest(serializers.Serializer):
    """The body of `POST /v1/admin/models/copy`."""

    model = Text("A stored model.", max_chars=MAX_NAME_CHARS, is_label=True, is_filled=True, is_required=True)
    name = Text("Its further name.", max_chars=MAX_NAME_CHARS, is_label=True, is_filled=True, is_required=True)


class ModelChange(serializers.Serializer):
    """The body of `PATCH /v1/admin/models/NAME`: what is left out stays."""

    enabled = Boolean("Whether requests may name it.")
    is_default = Boolean("Whether it serves requests that name no model; true takes that from another.")
    pinned = Boolean("Load it when its worker starts, and never unload it for another model.")
    idle_s = Integer("Seconds without a request after which it is unloaded; 0: never; null: the setting.", minimum=0)
    max_model_len = Integer("The context to serve, in tokens; null: that of the model.", minimum=1)
    fallback = Text(
        "The model that answers while this one cannot; empty: none.", max_chars=MAX_NAME_CHARS, is_label=True
    )
    transcriber = Text(
        "The model that writes down sound in its messages; empty: they have none.",
        max_chars=MAX_NAME_CHARS,
        is_label=True,
    )
    deprecated_at = Integer("Unix seconds; null: it is not.", minimum=0, maximum=2**34)
    system_prompt = Text("The first message of conversations without a system message.", max_bytes=MAX_TEXT_BYTES)
    chat_template = Text("In place of the template in the model's files; empty: that.", max_bytes=MAX_TEXT_BYTES)
    aliases = Array(text_read, item_schema={"type": "string"}, max_items=100, help_text="Further names.")
    sampling_defaults = Object("Request fields for requests that leave them out.")


PULL, IMPORT, MODEL, COPY = PullRequest(), ImportRequest(), ModelRequest(), CopyRequest()
CHANGE = ModelChange()


async def manager_require(request: HttpRequest, dialect: ErrorFormat) -> Caller:
    return await caller_require(request, dialect, str(Right.MODELS_MANAGE))


# Models.


async def models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    rows = await database_sync_to_async(lambda: list(ServedModel.objects.order_by("name")))()
    live = await models_live()
    data = await asyncio.to_thread(lambda: [model_object(row, live.get(row.name, UNLOADED)) for row in rows])
    return json_response(list_object(data, has_more=False))


async def model_retrieve(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    return json_response(await _described(await row_named(name)))


async def model_change(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    row = await row_named(name)
    changes = await values_sent(CHANGE, request)
    if "sampling_defaults" in changes:
        changes["sampling_defaults"] = sampling_defaults_read(changes["sampling_defaults"] or {})
    for field, value in changes.items():
        if value is None and field not in ("idle_s", "max_model_len", "deprecated_at"):
            raise bad_value(field, "must not be null; leave it out to keep what is set")
        is_instant = field == "deprecated_at" and value is not None
        setattr(row, field, datetime.fromtimestamp(value, UTC) if is_instant else value)
    try:
        await database_sync_to_async(model_update)(model=row)
    except ValidationError as error:
        fields = getattr(error, "error_dict", None) or changes
        raise bad_value(next(iter(fields), "model"), " ".join(error.messages)) from None
    return json_response(await _described(row))


async def model_delete(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    remove = database_sync_to_async(model_remove, thread_sensitive=False)  # it may take a while
    try:
        num_bytes = await remove(name=name, store=store())
    except ModelUnknown:
        raise _unknown(name) from None
    except (ValidationError, StoreError) as error:
        raise bad_value("model", _text_of(error)) from None
    return json_response({"id": name, "object": "model", "deleted": True, "num_bytes": num_bytes})


async def model_load(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    row = await row_named((await values_sent(MODEL, request))["model"])
    condition = (await models_live()).get(row.name)
    if condition is None:
        raise ApiError("model_unloaded", f"No worker has the files of {row.name!r}: start one that has.", "model")
    if condition.state in (UNLOADED.state, "failed"):
        await database_sync_to_async(acts.model_load, thread_sensitive=False)(name=row.name)
    return json_response(await _described(row))


async def model_unload(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    row = await row_named((await values_sent(MODEL, request))["model"])
    if row.pinned:
        raise bad_value("model", "is pinned, so it would be loaded again at once; change `pinned` first")
    await database_sync_to_async(acts.model_unload, thread_sensitive=False)(name=row.name)
    return json_response(await _described(row))


async def model_copy(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    sent = await values_sent(COPY, request)

    def copy() -> ServedModel:
        models = store()
        return stored_model_offer(store=models, manifest=models.copy(sent["model"], sent["name"]))

    try:
        row = await database_sync_to_async(copy, thread_sensitive=False)()
    except StoreError as error:
        raise bad_value("model", str(error)) from None
    except ValidationError as error:
        raise bad_value("name", " ".join(error.messages)) from None
    return json_response(await _described(row))


# Jobs.


async def pull_start(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await manager_require(request, dialect)
    sent = await values_sent(PULL, request)
    return await _job_start(caller, str(JobKind.PULL), sent["model"], sent["revision"], sent["name"])


async def import_start(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await manager_require(request, dialect)
    sent = await values_sent(IMPORT, request)
    return await _job_start(caller, str(JobKind.IMPORT), sent["path"], "", sent["name"], field="path")


async def check_start(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await manager_require(request, dialect)
    return await _job_start(caller, str(JobKind.CHECK), (await values_sent(MODEL, request))["model"], "", "")


async def _job_start(
    caller: Caller, kind: str, asked: str, revision: str, name: str, *, field: str = "model"
) -> HttpResponseBase:
    create = database_sync_to_async(job_create)
    try:
        job = await create(kind=kind, asked=asked, revision=revision, name=name, asked_by=caller.public_id)
    except StoreError as error:
        raise bad_value(field, str(error)) from None
    return json_response(job_object(job))


async def jobs(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    limit = query_integer(request, "limit", 100, minimum=1, maximum=MAX_JOBS_LISTED)
    found = await database_sync_to_async(jobs_list)(limit=limit)
    return json_response(list_object([job_object(job) for job in found], has_more=False))


async def job_retrieve(request: HttpRequest, dialect: ErrorFormat, job_id: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    return json_response(job_object(await _job(job_id)))


async def job_stop(request: HttpRequest, dialect: ErrorFormat, job_id: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    job = await database_sync_to_async(job_cancel)(job=await _job(job_id))
    return json_response(job_object(job))


# Objects.


def model_object(row: ServedModel, condition: ModelCondition) -> dict[str, Any]:
    """Return the object of a model; reads its manifest, if it is stored."""
    manifest = stored_manifest(store=store(), path=row.path)
    return {
        "id": row.name,
        "object": "model",
        "created": int(row.created_at.timestamp()),
        "state": condition.state,
        "state_reason": condition.reason,
        "context": condition.max_model_len or row.loaded_context,
        "memory_bytes": condition.memory_bytes or None,
        "computed_by": condition.computed_by or row.computed_by,
        "path": row.path,
        "enabled": row.enabled,
        "is_default": row.is_default,
        "pinned": row.pinned,
        "idle_s": row.idle_s,
        "max_model_len": row.max_model_len,
        "fallback": row.fallback or None,
        "transcriber": row.transcriber or None,
        "deprecated_at": unix_seconds(row.deprecated_at),
        "system_prompt": row.system_prompt or None,
        "chat_template": row.chat_template or None,
        "aliases": row.aliases,
        "sampling_defaults": row.sampling_defaults,
        "maker_defaults": row.maker_defaults,
        "stored": None if manifest is None else stored_object(manifest),
    }


def stored_object(manifest: Manifest) -> dict[str, Any]:
    """Return what is known of a stored model's files."""
    values = dataclasses.asdict(manifest)
    values.pop("version")
    return values | {"num_bytes": manifest.num_bytes}


def job_object(job: ModelJob) -> dict[str, Any]:
    left = job.num_bytes - job.num_done
    return {
        "id": job.public_id,
        "object": "model.job",
        "kind": job.kind,
        "model": job.asked,
        "revision": job.revision or None,
        "name": job.name or None,
        "state": job.state,
        "phase": job.phase or None,
        "num_bytes": job.num_bytes or None,
        "num_done": job.num_done,
        "bytes_per_second": round(job.rate),
        "seconds_left": round(left / job.rate) if job.rate and job.is_open else None,
        "message": job.message or None,
        "created_at": unix_seconds(job.created_at),
        "ended_at": unix_seconds(job.ended_at),
    }


def unix_seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


async def row_named(name: str) -> ServedModel:
    """Return the row of a model. Raises ApiError 404."""
    row = await database_sync_to_async(lambda: ServedModel.objects.filter(name=name).first())()
    if row is None:
        raise _unknown(name)
    return row


async def _described(row: ServedModel) -> dict[str, Any]:
    condition = (await models_live()).get(row.name, UNLOADED)
    return await asyncio.to_thread(model_object, row, condition)


async def _job(job_id: str) -> ModelJob:
    job = await database_sync_to_async(job_get)(public_id=job_id)
    if job is None:
        raise ApiError("not_found", f"There is no job {job_id[:40]!r}; GET /v1/admin/jobs lists them.")
    return job


def _text_of(error: ValidationError | StoreError) -> str:
    return " ".join(error.messages) if isinstance(error, ValidationError) else str(error)


def _unknown(name: str) -> ApiError:
    text = f"There is no model {name[:MAX_NAME_CHARS]!r} here; GET /v1/admin/models lists them."
    return ApiError("model_not_found", text, "model")


ACTS = {
    "pull": pull_start,
    "import": import_start,
    "check": check_start,
    "copy": model_copy,
    "load": model_load,
    "unload": model_unload,
}


async def model_act(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    """Do what the last part of the path says."""
    act = ACTS.get(name)
    if act is None:
        await manager_require(request, dialect)
        raise ApiError("not_found", f"POST here takes {', '.join(ACTS)}; got {name[:40]!r}.")
    return await act(request, dialect)


models = api_view(ADMIN, get=models_list)
model = api_view(ADMIN, get=model_retrieve, patch=model_change, delete=model_delete, post=model_act)
all_jobs = api_view(ADMIN, get=jobs)
job = api_view(ADMIN, get=job_retrieve, delete=job_stop)
