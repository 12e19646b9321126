"""Routes of the Lightcone dialect: completions are completion.py's, stored ones stored.py's; here is the list of models."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.dialects.completion import completion
from chat.dialects.dialect import Door
from chat.dialects.lightcone import stored
from chat.dialects.lightcone.dialect import LIGHTCONE
from chat.dialects.named_models import model_named, models_named
from chat.dialects.view import api_view, caller_require, json_response, unknown_view
from chat.services.catalogue import ModelEntry


def model_object(model: ModelEntry, name: str) -> dict[str, Any]:
    """The model under one of the names that `model` takes."""
    return {"id": name, "object": "model", "created": model.created_at, "owned_by": model.owned_by}


async def models_list(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    data = [model_object(*named) for named in await models_named(caller)]
    return json_response({"object": "list", "data": data})


async def model_retrieve(request: HttpRequest, dialect: Door, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    return json_response(model_object(*await model_named(model_id, caller)))


chat_completions = api_view(LIGHTCONE, get=stored.completions_list, post=completion)
chat_completion = api_view(LIGHTCONE, get=stored.completion_retrieve, post=stored.completion_update, delete=stored.completion_delete)
chat_completion_events = api_view(LIGHTCONE, get=stored.completion_events)
chat_completion_messages = api_view(LIGHTCONE, get=stored.completion_messages)
models = api_view(LIGHTCONE, get=models_list)
model = api_view(LIGHTCONE, get=model_retrieve)
unknown_route = unknown_view(LIGHTCONE)
