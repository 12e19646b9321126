"""The routes that tell of models: all of them, one of them, those that are loaded; and the version."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.ollama.fields import model_name_read
from chat.api.ollama.lines import instant_text
from chat.api.ollama.options import SENT_NAMES
from chat.api.ollama.translation import names_of
from chat.api.view import caller_require, json_response, object_read
from chat.catalog import named_models
from chat.catalog.model_facts import ModelFacts, model_facts
from chat.catalog.models import ServedModel
from chat.catalog.named_models import NamedModel, model_asked, models_named
from chat.relay.state.workers import UNLOADED

API_VERSION = "0.12.11"
"""The release of Ollama whose API this is. Clients compare it with the one that they need."""
LOADED_STATES = ("ready", "loading", "draining")
NEVER = instant_text(datetime(9999, 12, 31, tzinfo=UTC))
"""When a model is unloaded that stays loaded."""


async def tags(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """List the models that the key may use, each under all of its names."""
    caller = await caller_require(request, dialect)
    models = await models_named(caller)
    facts = await facts_of({named.entry.name for named in models})
    return json_response({"models": [_listed(named, facts[named.entry.name]) for named in models]})


async def running(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """List the models that have a worker, each once."""
    caller = await caller_require(request, dialect)
    models = [
        named
        for named in await models_named(caller)
        if named.name == named.entry.name and named.condition.state in LOADED_STATES
    ]
    facts = await facts_of({named.entry.name for named in models})
    return json_response({"models": [_running(named, facts[named.entry.name]) for named in models]})


async def show(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Describe one model."""
    caller = await caller_require(request, dialect)
    named = await model_found(model_name_read(await object_read(request)), caller)
    facts = (await facts_of({named.entry.name}))[named.entry.name]
    return json_response(_shown(named, facts))


async def version(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await caller_require(request, dialect)
    return json_response({"version": API_VERSION, "lightcone": settings.LIGHTCONE_VERSION})


async def model_found(name: str, caller: Caller) -> NamedModel:
    """Return the model of this name, with or without `:latest`. Raises ApiError."""
    entry = await model_asked(name, names_of(name), caller)
    live = await named_models.models_live()
    return NamedModel(entry, entry.alias or entry.full_name, live.get(entry.name, UNLOADED))


async def facts_of(names: set[str]) -> dict[str, ModelFacts]:
    """Return the facts of models by their names in the catalogue. No query of a database waits for files."""
    paths: dict[str, str] = await database_sync_to_async(_paths_read)(names)
    return await asyncio.to_thread(_facts_read, names, paths)


def _facts_read(names: set[str], paths: dict[str, str]) -> dict[str, ModelFacts]:
    return {name: model_facts(paths[name]) if name in paths else ModelFacts() for name in names}


def _paths_read(names: set[str]) -> dict[str, str]:
    return dict(ServedModel.objects.filter(name__in=names).values_list("name", "path"))


def _details(facts: ModelFacts) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": facts.format,
        "family": facts.architecture,
        "families": [facts.architecture] if facts.architecture else [],
        "parameter_size": facts.parameter_size,
        "quantization_level": facts.quantization,
    }


def _listed(named: NamedModel, facts: ModelFacts) -> dict[str, Any]:
    return {
        "name": named.name,
        "model": named.name,
        "modified_at": instant_text(facts.modified_at),
        "size": facts.num_bytes,
        "digest": facts.digest,
        "details": _details(facts),
    }


def _running(named: NamedModel, facts: ModelFacts) -> dict[str, Any]:
    is_on_gpu = settings.LIGHTCONE_DEVICE != "cpu"
    return {
        "name": named.name,
        "model": named.name,
        "size": facts.num_bytes,
        "digest": facts.digest,
        "details": _details(facts),
        "expires_at": NEVER,
        "size_vram": facts.num_bytes if is_on_gpu else 0,
        "context_length": named.max_model_len or facts.context,
    }


def _shown(named: NamedModel, facts: ModelFacts) -> dict[str, Any]:
    parameters = _parameters(named.entry.sampling_defaults)
    architecture = facts.architecture
    info = {
        "general.architecture": architecture,
        "general.basename": named.name,
        "general.parameter_count": facts.num_parameters,
        f"{architecture}.context_length": named.max_model_len or facts.context,
        f"{architecture}.block_count": facts.num_layers,
        f"{architecture}.embedding_length": facts.width,
    }
    lines = [f"FROM {named.entry.name}", *(f"PARAMETER {name} {value}" for name, value in parameters.items())]
    if named.entry.system_prompt:
        lines.append(f'SYSTEM """{named.entry.system_prompt}"""')
    return {
        "modelfile": "\n".join(lines) + "\n",
        "system": named.entry.system_prompt,
        "parameters": "\n".join(f"{name:<30} {value}" for name, value in parameters.items()),
        "template": named.entry.chat_template or facts.template,
        "license": facts.licence,
        "details": _details(facts),
        "model_info": info,
        "capabilities": facts.reported(named.condition.kind, named.entry.modalities).capabilities,
        "modified_at": instant_text(facts.modified_at),
    }


def _parameters(defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options for requests that leave them out."""
    return {
        SENT_NAMES[name]: value for name, value in sorted(defaults.items()) if name in SENT_NAMES and value is not None
    }
