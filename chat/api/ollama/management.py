"""The routes that change what is served, for keys with the right to manage models: pull, create, copy and delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.streaming import EventStreamResponse, failure_log
from chat.api.dialect import ErrorFormat
from chat.api.ollama.fields import COPY, CREATE, PULL, model_name_read
from chat.api.ollama.lines import MEDIA_TYPE, error_line, line
from chat.api.ollama.models import facts_of, model_found
from chat.api.ollama.options import SENT_NAMES, options_ignored, options_translate
from chat.api.ollama.pulling import SUCCESS, Pull, asked_read
from chat.api.ollama.translation import names_of
from chat.api.request.fields import bad_value
from chat.api.request.parse import fields_read
from chat.api.request.schema import sampling_defaults_read
from chat.api.view import caller_require, ignored_line, json_response, object_read
from chat.catalog import named_models
from chat.catalog.further_models import model_derive, model_name_add
from chat.catalog.named_models import NamedModel, model_resolve_async
from chat.catalog.removal import model_remove
from chat.errors import ApiError
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore

LOOKS, LOOK_S = 15, 0.2
"""Workers look at the catalogue every second."""
WITHOUT_PLACE = ("seed", "stop")
"""Fields of requests for which a model keeps no value."""


async def manager_require(request: HttpRequest, dialect: ErrorFormat) -> Caller:
    return await caller_require(request, dialect, str(Right.MODELS_MANAGE))


async def pull(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Fetch a model of the hub into the store, and enter it into the catalogue under the name that was asked for."""
    await manager_require(request, dialect)
    body = await object_read(request)
    name, is_stream = model_name_read(body), fields_read(PULL, body)["stream"]
    if await _is_taken(name):
        return _statuses(SUCCESS, is_stream=is_stream)
    pulling = Pull(asked_read(name))
    updates = _until_noticed(pulling, name)
    if is_stream:
        return EventStreamResponse(_lines(updates), on_close=pulling.leave, content_type=MEDIA_TYPE)
    try:
        last = [update async for update in updates][-1]
    finally:
        pulling.leave()
    return json_response(last)


async def _until_noticed(pulling: Pull, name: str) -> AsyncIterator[dict[str, Any]]:
    """Yield what a pull does; its success once workers know the model, as clients ask it at once."""
    async for update in pulling.updates():
        if update == SUCCESS:
            await noticed_wait(name)
        yield update


async def noticed_wait(name: str) -> None:
    """Wait until a worker knows of a new model, for `LOOKS` looks at most, or not at all if there is no worker."""
    for _ in range(LOOKS):
        live = await named_models.models_live()
        if not live or name in live:
            return
        await asyncio.sleep(LOOK_S)


async def _lines(updates: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    try:
        async for update in updates:
            yield line(update)
    except Exception as error:
        yield error_line(failure_log(error, "A pull failed"))


async def create(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Add a model with the files of another, and values of its own for options that requests leave out."""
    caller = await manager_require(request, dialect)
    body = await object_read(request)
    name, fields = model_name_read(body), fields_read(CREATE, body)
    if not fields["from"]:
        raise bad_value("from", "is required: name the served model whose files it has", "missing_required_parameter")
    source = await _plain_model(fields["from"], "from", caller)
    defaults = _defaults(fields["parameters"], source)
    request.lightcone_ignored = ignored_line(options_ignored(body.get("parameters"), "parameters"))
    await _change(
        "model",
        model_derive,
        source=source.entry.name,
        name=name,
        sampling_defaults=defaults,
        context=(fields["parameters"] or {}).get("num_ctx"),
        system_prompt=fields["system"] or "",
        chat_template=fields["template"] or "",
    )
    await noticed_wait(name)
    facts = (await facts_of({source.entry.name}))[source.entry.name]
    layer, manifest = f"using existing layer sha256:{facts.digest}", "writing manifest"
    return _statuses({"status": layer}, {"status": manifest}, SUCCESS, is_stream=fields["stream"])


def _defaults(parameters: dict[str, Any] | None, source: NamedModel) -> dict[str, Any]:
    """Return the values of a created model for fields that requests leave out. Raises ApiError."""
    translated = options_translate(parameters, "parameters")
    for name in WITHOUT_PLACE:
        if name in translated:
            message = "cannot be kept: a model here has no place for it; send it with requests"
            raise bad_value(f"parameters.{name}", message, "unsupported_parameter")
    needed, served = (parameters or {}).get("num_ctx"), source.max_model_len
    if needed and served and needed > served:
        raise bad_value("parameters.num_ctx", f"must be at most {served}, the context of {source.name}, got {needed}")
    if "max_tokens" in translated:
        translated["max_completion_tokens"] = translated.pop("max_tokens")
    try:
        return sampling_defaults_read(translated)
    except ApiError as error:
        error.rename_fields(lambda path: f"parameters.{SENT_NAMES[path]}" if path in SENT_NAMES else path)
        raise


async def copy(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Give a model a further name, under which it serves at once."""
    caller = await manager_require(request, dialect)
    fields = fields_read(COPY, await object_read(request))
    source = await _plain_model(fields["source"], "source", caller)
    await _change("destination", model_name_add, name=source.entry.name, further=fields["destination"])
    return HttpResponse(status=200)


async def delete(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Remove a further name of a model, or a model with its files in the store; workers unload it by themselves."""
    caller = await manager_require(request, dialect)
    asked = model_name_read(await object_read(request))
    found = await _plain_model(asked, "model", caller)
    known = (found.entry.name, *found.entry.aliases)
    name = next(name for name in names_of(asked) or () if name in known)
    await _change("model", model_remove, name=name, store=ModelStore(settings.LIGHTCONE_MODEL_STORE))
    return HttpResponse(status=200)


async def _plain_model(name: str, param: str, caller: Caller) -> NamedModel:
    """Return the model of this name. Raises ApiError, also for a weighted alias or an adapter."""
    found = await model_found(name, caller)
    if found.entry.alias or found.entry.adapter:
        what = "a weighted alias" if found.entry.alias else "an adapter"
        raise bad_value(param, f"is {what}: name a model, and change this one over /v1/admin")
    return found


async def _change(param: str, service: Callable[..., Any], **fields: Any) -> None:
    """Call a service of the catalogue. What it refuses is a fault of `param`. Raises ApiError."""
    try:
        await database_sync_to_async(service, thread_sensitive=False)(**fields)  # it may take a while
    except ValidationError as error:
        raise bad_value(param, f"cannot be used: {' '.join(error.messages)}") from None
    except StoreError as error:
        raise bad_value(param, f"cannot be removed: {error}") from None


async def _is_taken(name: str) -> bool:
    return any([await model_resolve_async(name=one) for one in names_of(name) or ()])


def _statuses(*statuses: dict[str, Any], is_stream: bool) -> HttpResponse:
    """Return the statuses of work that is done: all of them, one a line, or the last alone."""
    if not is_stream:
        return json_response(statuses[-1])
    return HttpResponse(b"".join(map(line, statuses)), content_type=MEDIA_TYPE)
