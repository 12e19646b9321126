"""Make the OpenAPI document from the descriptions of all routes, and serve it and its page.

It is made when it is first asked for: serving does without its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from chat.api.openapi.describe import COMPUTED, FETCHED, TEXT, Operation, Schema, ref
from chat.catalog.services import model_resolve

PATH_PARAMETER = re.compile(r"\{(\w+)\}")


def described_in() -> tuple[str, ...]:
    """Return the modules that describe routes."""
    of_dialects = [module for entry in registry.DIALECTS for module in entry.described_in]
    return (*of_dialects, "chat.api.openapi.status", "chat.batches.openapi")


def operations() -> Iterator[tuple[str, Operation]]:
    """Yield the tag and the description of every method of every route."""
    for name in described_in():
        module = import_module(name)
        for operation in module.OPERATIONS:
            yield operation.tag or module.TAG, operation


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Schema] = {}
    for module in ("chat.api.openapi.answers", *described_in()):
        schemas.update(import_module(module).SCHEMAS)
    for tag, operation in operations():
        method, path = operation.route.split(" ")
        paths.setdefault(path, {})[method.lower()] = _described(operation, path, tag)
        if operation.body is not None:
            schemas[operation.body.name] = operation.body.schema()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lightcone",
            "version": settings.LIGHTCONE_VERSION,
            "description": "Self-hosted chat completions.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation, path: str, tag: str) -> dict[str, Any]:
    summary, _, description = operation.text.partition(". ")
    in_path = [{"in": "path", "name": name, "required": True, "schema": TEXT} for name in PATH_PARAMETER.findall(path)]
    content = {operation.answer_type: operation.answer, "text/event-stream": operation.stream}
    errors = operation.errors
    if errors is None:
        errors = COMPUTED if operation.body is not None else FETCHED
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": summary.removesuffix("."),
        "tags": [tag],
        "responses": {
            "200": _response({kind: name for kind, name in content.items() if name}),
            **{str(status): _response({"application/json": operation.error}) for status in errors},
        },
    }
    if description:
        described["description"] = description
    if in_path or operation.parameters:
        described["parameters"] = [*in_path, *operation.parameters]
    if operation.body is not None:
        sent = {"schema": ref(operation.body.name), "example": operation.body.example}
        described["requestBody"] = {"required": True, "content": {"application/json": sent}}
    elif operation.form is not None:
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": operation.form}}}
    if operation.needs_key:
        described["security"] = [{"key": []}]
    return described


def _response(names: dict[str, str]) -> dict[str, Any]:
    return {"description": "", "content": {kind: {"schema": ref(name)} for kind, name in names.items()}}


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
    """Show the page of the API, with the name of the default model for users who are signed in.

    Its scripts are static files, so that the content policy holds.
    """
    model = model_resolve(name=None) if request.user.is_authenticated else None
    return render(request, "docs/api.html", {"model": model.name if model else ""})
