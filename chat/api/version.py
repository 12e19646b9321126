"""`GET /version`: which Lightcone answers. Needs a key, as every route but those of health."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.api.dialect import ErrorFormat
from chat.api.openai.dialect import LIGHTCONE
from chat.api.view import api_view, caller_require, json_response


async def _version(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    await caller_require(request, dialect)
    return json_response({"version": settings.LIGHTCONE_VERSION})


version = api_view(LIGHTCONE, get=_version)
