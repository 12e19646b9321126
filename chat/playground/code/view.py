"""The route of View code: the programs of the very request that the page has sent or will send."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from chat.api.request.fields import Object, Text
from chat.api.view import json_response
from chat.catalog.services import models_for_caller
from chat.conversations.frame import Visit, page_view
from chat.conversations.runs import RUN_NAME
from chat.conversations.schema import page_body_read
from chat.playground.code.snippets import snippets_make


class CodeFields(serializers.Serializer):
    request = Object(is_required=True)
    run = Text(pattern=RUN_NAME.pattern)
    answer = Text()


CODE = CodeFields()


def code(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Return the snippets. Clients need a model where our API does not: one that is left out is the default."""
    values = page_body_read(request, CODE)
    asked = values["request"]
    if asked.get("model") is None and (models := models_for_caller(caller=visit.caller)):
        asked = {**asked, "model": models[0].full_name}
    root = request.build_absolute_uri("/").rstrip("/")
    made = snippets_make(asked, root=root, run_name=values["run"] or "", answer=values["answer"])
    return json_response({"snippets": made})


code_view = page_view(post=code)
