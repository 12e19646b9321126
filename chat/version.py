"""`GET /version`: which Lightcone answers. Needs no key, as clients ask it before anything else."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.dialects.dialect import Door
from chat.dialects.lightcone.dialect import LIGHTCONE
from chat.dialects.view import api_view, json_response


async def _version(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    return json_response({"version": settings.LIGHTCONE_VERSION})


version = api_view(LIGHTCONE, is_open=True, get=_version)
