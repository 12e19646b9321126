"""The list of models as OpenAI's clients read it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.view import caller_require, json_response
from chat.catalog.named_models import NamedModel, model_named, models_named
from chat.catalog.services import sampling_defaults_effective


def model_object(model: NamedModel, caller: Caller) -> dict[str, Any]:
    """Return the model under one of its names. Why it failed is only for keys that read usage, as it may name files."""
    shown = {
        "id": model.name,
        "object": "model",
        "created": model.entry.created_at,
        "owned_by": model.entry.owned_by,
        "state": model.condition.state,
        "max_model_len": model.max_model_len,
        "default_parameters": sampling_defaults_effective(model.entry.sampling_defaults),
    }
    return shown | {"state_reason": model.condition.reason} if caller.has_right(str(Right.USAGE_READ)) else shown


async def models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    data = [model_object(named, caller) for named in await models_named(caller)]
    return json_response({"object": "list", "data": data})


async def model_retrieve(request: HttpRequest, dialect: ErrorFormat, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    return json_response(model_object(await model_named(model_id, caller), caller))
