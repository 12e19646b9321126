"""The routes of `/v1/admin/adapters` and `/v1/admin/aliases`: names beside those of models."""

from __future__ import annotations

from typing import Any

from channels.db import database_sync_to_async
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase
from rest_framework import serializers

from chat.api.bodies import values_sent
from chat.api.dialect import ErrorFormat
from chat.api.queries import list_object
from chat.api.request.fields import Array, Text, bad_value
from chat.api.view import api_view, json_response
from chat.catalog.adapters import adapter_delete, adapter_set
from chat.catalog.models import ModelAdapter
from chat.catalog.weighted_aliases import (
    MAX_TARGETS,
    MAX_WEIGHT,
    Targets,
    weighted_alias_delete,
    weighted_alias_set,
    weighted_aliases,
)
from chat.errors import ApiError
from chat.model_jobs.views import ADMIN, MAX_PATH_CHARS, manager_require, row_named, unix_seconds
from chat.model_store.manifest import MAX_NAME_CHARS

TARGET_SCHEMA = {
    "type": "object",
    "properties": {"model": {"type": "string"}, "weight": {"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT}},
    "required": ["model", "weight"],
}


class AliasTargets(serializers.Serializer):
    """The body of `PUT /v1/admin/aliases/NAME`."""

    targets = Array(
        item_schema=TARGET_SCHEMA, max_items=MAX_TARGETS, if_empty="must name at least one model", is_required=True
    )


class AdapterFiles(serializers.Serializer):
    """The body of `PUT /v1/admin/adapters/MODEL:ADAPTER`."""

    path = Text(
        "A folder as PEFT saves it, on the server's machine.", max_chars=MAX_PATH_CHARS, is_label=True, is_required=True
    )


ALIAS, ADAPTER = AliasTargets(), AdapterFiles()


# Adapters.


async def adapters_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    find = database_sync_to_async(lambda: list(ModelAdapter.objects.select_related("model")))
    return json_response(list_object([adapter_object(one) for one in await find()], has_more=False))


async def adapter_put(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    path = (await values_sent(ADAPTER, request))["path"]
    model, _, adapter = name.rpartition(":")
    row = await row_named(model)
    try:
        made = await database_sync_to_async(adapter_set)(model=row, name=adapter, path=path)
    except ValidationError as error:
        raise bad_value("path", " ".join(error.messages)) from None
    return json_response(adapter_object(made))


async def adapter_remove(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    model, _, adapter = name.rpartition(":")
    find = database_sync_to_async(lambda: ModelAdapter.objects.filter(model__name=model, name=adapter).first())
    found = await find()
    if found is None:
        raise ApiError("not_found", f"There is no adapter {name[:MAX_NAME_CHARS]!r}; they are called MODEL:ADAPTER.")
    await database_sync_to_async(adapter_delete)(adapter=found)
    return json_response({"id": name, "object": "adapter", "deleted": True})


# Weighted aliases.


async def aliases_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await manager_require(request, dialect)
    found = await database_sync_to_async(weighted_aliases)()
    return json_response(list_object([alias_object(name, found[name]) for name in sorted(found)], has_more=False))


async def alias_set(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    targets = (await values_sent(ALIAS, request))["targets"]
    if not all(isinstance(one, dict) for one in targets):
        raise bad_value("targets", "must be objects of `model` and `weight`", "invalid_type")
    try:
        alias = await database_sync_to_async(weighted_alias_set)(name=name, targets=targets)
    except ValidationError as error:
        raise bad_value("targets", " ".join(error.messages)) from None
    return json_response(alias_object(name, tuple((one["model"], one["weight"]) for one in alias.targets)))


async def alias_remove(request: HttpRequest, dialect: ErrorFormat, name: str) -> HttpResponseBase:
    await manager_require(request, dialect)
    if not await database_sync_to_async(weighted_alias_delete)(name=name):
        raise ApiError("not_found", f"There is no weighted alias {name[:MAX_NAME_CHARS]!r}.")
    return json_response({"id": name, "object": "alias", "deleted": True})


def adapter_object(adapter: ModelAdapter) -> dict[str, Any]:
    return {
        "id": adapter.full_name,
        "object": "adapter",
        "model": adapter.model.name,
        "name": adapter.name,
        "path": adapter.path,
        "enabled": adapter.enabled,
        "created": unix_seconds(adapter.created_at),
    }


def alias_object(name: str, targets: Targets) -> dict[str, Any]:
    return {
        "id": name,
        "object": "alias",
        "targets": [{"model": model, "weight": weight} for model, weight in targets],
    }


adapters = api_view(ADMIN, get=adapters_list)
adapter = api_view(ADMIN, put=adapter_put, delete=adapter_remove)
aliases = api_view(ADMIN, get=aliases_list)
alias = api_view(ADMIN, put=alias_set, delete=alias_remove)
