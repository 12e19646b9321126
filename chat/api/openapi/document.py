"""Make the OpenAPI document from the descriptions of all routes, when it is first asked for, and serve it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from chat.api import registry
from chat.catalog.services import model_resolve

ROOMS = ("chat.batches.openapi", "chat.model_jobs.openapi", "chat.organization.openapi")
"""Of rooms above the dialects."""


GROUPS = {
    "chat": "Chat completions in OpenAI's shape, whole and streamed, and those that are stored",
    "models": "What is served, and what each model can do",
    "prompts": "Text completions, embeddings, reranking, tokens",
    "audio": "Speech to text",
    "responses": "OpenAI's Responses API",
    "messages": "Anthropic's Messages API",
    "ollama": "The API of Ollama",
    "scale": "For clients of Scale",
    "files": "Input and output of batches",
    "batches": "Many requests at a time, at a lower price",
    "models_manage": "Administration: pull, load and remove models. For keys with the right “Manage models”",
    "organization": "Administration: projects, people, keys, usage and costs, in OpenAI's shape. For admin keys",
    "health": "For monitoring, without a key",
}
"""What the groups of routes are, in the order in which people need them."""


def modules() -> list[Any]:
    """Return the modules that describe routes."""
    of_dialects = [name for entry in registry.DIALECTS for name in entry.described_in]
    return [import_module(name) for name in (*of_dialects, "chat.api.openapi.answers", *ROOMS)]


def operations() -> dict[str, dict[str, Any]]:
    """Return the description of every operation, by method and path."""
    return {route: operation for module in modules() for route, operation in module.OPERATIONS.items()}


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route, operation in operations().items():
        method, path = route.split(" ")
        paths.setdefault(path, {})[method.lower()] = operation
    schemas = {name: schema for module in modules() for name, schema in module.SCHEMAS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lightcone",
            "version": settings.LIGHTCONE_VERSION,
            "description": "Self-hosted chat completions.",
        },
        "tags": [{"name": name, "description": description} for name, description in GROUPS.items()],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


@cache
def _document_json() -> bytes:
    return orjson.dumps(document())


@csrf_exempt
@require_safe
def schema_view(request: HttpRequest) -> HttpResponse:
    """Answer with the OpenAPI document."""
    headers = {"Content-Disposition": 'inline; filename="Lightcone.json"'}
    return HttpResponse(_document_json(), content_type="application/vnd.oai.openapi+json", headers=headers)


def docs_view(request: HttpRequest) -> HttpResponse:
    """Show the page of the API, with the name of the default model for users who are signed in."""
    model = model_resolve(name=None) if request.user.is_authenticated else None
    base_url = f"{request.scheme}://{request.get_host()}"
    return render(request, "docs/api.html", {"model": model.name if model else "", "base_url": base_url})
