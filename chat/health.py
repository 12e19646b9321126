"""Two open routes for load balancers: is the process alive, and can it serve now? A bare status, no details."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from chat.dialects.lightcone.dialect import LIGHTCONE
from chat.dialects.view import Door, api_view, json_response
from chat.models.catalogue import ModelState
from chat.services.catalogue import models_for_caller_async


async def _live(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    return json_response({"status": "ok"})


async def _ready(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    models = await models_for_caller_async()
    is_ready = any(model.state == ModelState.READY for model in models)
    response = json_response({"status": "ready" if is_ready else "loading"}, status=200 if is_ready else 503)
    if not is_ready:
        response["Retry-After"] = "1"
    return response


live = api_view(LIGHTCONE, get=_live)
ready = api_view(LIGHTCONE, get=_ready)
