"""`GET /v1/models` for two kinds of client. Requests with `anthropic-version` get the list in Anthropic's shape."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

from chat.api.anthropic import views as messages
from chat.api.openai import views as lightcone
from chat.api.view import Handler


def by_client(anthropic: Handler, others: Handler) -> Handler:
    async def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        chosen = anthropic if "anthropic-version" in request.headers else others
        response: HttpResponseBase = await chosen(request, **kwargs)
        return response

    exempt: Handler = csrf_exempt(view)
    return exempt


urlpatterns = [
    re_path(r"^v1/models/?\Z", by_client(messages.models, lightcone.models)),
    re_path(r"^v1/models/(?P<model_id>.+?)/?\Z", by_client(messages.model, lightcone.model)),
]
