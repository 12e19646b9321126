"""Two open routes for load balancers: is the process alive, and can it serve now? A bare status, no details."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from chat.dialects.dialect import Door
from chat.dialects.lightcone.dialect import LIGHTCONE
from chat.dialects.view import api_view, json_response
from chat.services.health import is_ready


async def _live(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    return json_response({"status": "ok"})


async def _ready(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    can_serve = await is_ready()
    response = json_response({"status": "ready" if can_serve else "loading"}, status=200 if can_serve else 503)
    if not can_serve:
        response["Retry-After"] = "1"
    return response


live = api_view(LIGHTCONE, is_open=True, get=_live)
ready = api_view(LIGHTCONE, is_open=True, get=_ready)
