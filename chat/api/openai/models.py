"""The list of models as OpenAI's clients read it."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.view import caller_require, json_response
from chat.catalog.model_facts import model_facts
from chat.catalog.named_models import NamedModel, model_named, models_named
from chat.catalog.services import sampling_defaults_effective


def model_object(model: NamedModel, caller: Caller) -> dict[str, Any]:
    """Return the model under one of its names. Why it failed is only for keys that read usage, as it may name files.

    Reads the heads of the model's files, once while they stay as they are; call it in a thread.
    """
    facts = model_facts(model.entry.path).reported(model.condition.kind, model.entry.modalities)
    shown = {
        "id": model.name,
        "object": "model",
        "created": model.entry.created_at,
        "owned_by": model.entry.owned_by,
        "state": model.condition.state,
        "max_model_len": model.max_model_len,
        "context": facts.context or None,
        "kind": model.condition.kind or None,
        "capabilities": facts.abilities,
        "format": facts.quantization or facts.format or None,
        "architecture": facts.architecture or None,
        "deprecated_at": model.entry.deprecated_at,
        "default_parameters": sampling_defaults_effective(model.entry.sampling_defaults),
    }
    return shown | {"state_reason": model.condition.reason} if caller.has_right(str(Right.USAGE_READ)) else shown


async def models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    models = await models_named(caller)
    data = await asyncio.to_thread(lambda: [model_object(named, caller) for named in models])
    return json_response({"object": "list", "data": data})


async def model_retrieve(request: HttpRequest, dialect: ErrorFormat, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    named = await model_named(model_id, caller)
    return json_response(await asyncio.to_thread(model_object, named, caller))
