"""The pages that describe the API. The description itself is made when somebody first asks for it: serving does without its 6 MiB."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern

from chat.catalog.services import model_resolve


def described_routes(modules: tuple[str, ...]) -> list[URLPattern]:
    """Import the modules that describe routes, and list their patterns."""
    return [pattern for module in modules for pattern in import_module(module).urlpatterns]


def schema_page(modules: tuple[str, ...]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Make the view of the OpenAPI document of what these modules describe."""

    @cache
    def document() -> Callable[[HttpRequest], HttpResponseBase]:
        from chat.api.openapi.document import document_view

        return document_view(described_routes(modules))

    return lambda request: document()(request)


def docs_view(request: HttpRequest) -> HttpResponse:
    """The page that shows it; its scripts are static files, so that the content policy holds. Names of models are for people signed in."""
    model = model_resolve(name=None) if request.user.is_authenticated else None
    return render(request, "docs/api.html", {"model": model.name if model else ""})
