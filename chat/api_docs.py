"""The pages that describe the API. The description itself is made when somebody first asks for it: serving does without its 6 MiB."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from chat.services.catalogue import model_resolve


def schema_view(request: HttpRequest) -> HttpResponseBase:
    """The OpenAPI document."""
    from chat.openapi import schema_view as described

    answer: HttpResponseBase = described(request)
    return answer


def docs_view(request: HttpRequest) -> HttpResponse:
    """The page that shows it; its scripts are static files, so that the content policy holds. Names of models are for people signed in."""
    model = model_resolve(name=None) if request.user.is_authenticated else None
    return render(request, "docs/api.html", {"model": model.name if model else ""})
