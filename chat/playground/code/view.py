"""The route of View code: the programs of the very request that the page has sent or will send."""

from __future__ import annotations

from functools import partial

from django.http import HttpRequest, HttpResponse
from rest_framework import serializers

from chat.api.request.fields import Object, Text
from chat.api.view import json_response, run_in_thread_if_large
from chat.catalog.services import models_for_caller_async
from chat.conversations.frame import Visit, page_view_async
from chat.conversations.runs import RUN_NAME
from chat.conversations.schema import page_body_read
from chat.playground.attached import messages_fill
from chat.playground.code.snippets import snippets_make


class CodeFields(serializers.Serializer):
    request = Object(is_required=True)
    run = Text(pattern=RUN_NAME.pattern)
    answer = Text()


CODE = CodeFields()


async def code(request: HttpRequest, visit: Visit) -> HttpResponse:
    """Return the snippets. Clients need a model where our API does not: one that is left out is the default.

    Files of the chat are in the request as they are sent.
    """
    values = page_body_read(request, CODE)
    asked = values["request"]
    if asked.get("model") is None and (models := await models_for_caller_async(caller=visit.caller)):
        asked = {**asked, "model": models[0].full_name}
    messages = asked.get("messages")
    filled = await messages_fill(messages if isinstance(messages, list) else [], visit.caller)
    try:
        if filled.num_bytes:
            asked = {**asked, "messages": filled.messages}
        root = request.build_absolute_uri("/").rstrip("/")
        make = partial(snippets_make, asked, root=root, run_name=values["run"] or "", answer=values["answer"])
        return json_response({"snippets": await run_in_thread_if_large(filled.num_bytes, make)})
    finally:
        filled.give_back()


code_view = page_view_async(post=code)
