"""The routes about the server itself. Two are open, for load balancers; the version needs a key."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.api.dialect import ErrorFormat
from chat.api.openai.dialect import LIGHTCONE
from chat.api.server_contract import STOP
from chat.api.view import api_view, caller_require, json_response
from chat.catalog.named_models import installation_state


async def _live(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    return json_response({"status": "ok"})


async def _ready(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    stop = getattr(request, "scope", {}).get(STOP)
    state = "draining" if stop is not None and stop.is_announced else await installation_state()
    response = json_response({"status": state}, status=200 if state == "ready" else 503)
    if state not in ("ready", "failed"):
        response["Retry-After"] = "1"
    return response


async def _version(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await caller_require(request, dialect)
    return json_response({"version": settings.LIGHTCONE_VERSION})


version = api_view(LIGHTCONE, get=_version)
live = api_view(LIGHTCONE, is_open=True, get=_live)
ready = api_view(LIGHTCONE, is_open=True, get=_ready)
