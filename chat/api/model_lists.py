"""`GET /v1/models` for two kinds of client. Requests with `anthropic-version` get the list in Anthropic's shape."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from chat.api.anthropic import models as messages
from chat.api.anthropic.dialect import MESSAGES
from chat.api.openai import models as lightcone
from chat.api.openai.dialect import LIGHTCONE
from chat.api.view import Handler, api_view


def by_client(in_messages: Handler, in_lightcone: Handler) -> Handler:
    anthropic, others = api_view(MESSAGES, get=in_messages), api_view(LIGHTCONE, get=in_lightcone)

    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        chosen = anthropic if "anthropic-version" in request.headers else others
        response: HttpResponseBase = await chosen(request, **kwargs)
        return response

    exempt: Handler = csrf_exempt(view)
    return exempt


urlpatterns = [
    re_path(r"^v1/models/?\Z", by_client(messages.models_list, lightcone.models_list)),
    re_path(r"^v1/models/(?P<model_id>.+?)/?\Z", by_client(messages.model_retrieve, lightcone.model_retrieve)),
]
