"""The prompt of a request as its template renders it, and the tokens of a text, before anything is sent.

A worker reads them (`Task.READ`), within the limits of the project and with a line in the request log, as over the
API. A model that is not loaded is never loaded for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import HttpRequest
from rest_framework import serializers

from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted, StartedRun
from chat.api.answering.streaming import prompt_read
from chat.api.openai.tokens import MAX_CHARS, prompt_only, rendered
from chat.api.request.fields import Object, Text
from chat.api.request.parse import values_parse
from chat.api.request.parsed import ParsedRequest
from chat.conversations.frame import PageFormat
from chat.conversations.schema import MAX_MODEL_CHARS, fields_read
from chat.playground.attached import run_start_filled
from chat.playground.offered import model_ready
from chat.playground.requests import page_request_parse
from engine.api import GenerationRequest, RawPrompt, StopRules


class RenderFields(serializers.Serializer):
    request = Object(is_required=True)


class CountFields(serializers.Serializer):
    model = Text(max_chars=MAX_MODEL_CHARS, is_label=True)
    text = Text(max_chars=MAX_CHARS, is_required=True)


RENDER, COUNT = RenderFields(), CountFields()


class _Reading(PageFormat):
    """A body of the page whose prompt is read. `username`: whom the request log names."""

    def __init__(self, username: str) -> None:
        self.username = username

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        parsed = self.prompt(body)
        return replace(parsed, delivery=replace(parsed.delivery, user=self.username))

    def prompt(self, body: dict[str, Any]) -> ParsedRequest:
        return rendered(page_request_parse(fields_read(RENDER, body)["request"]))


class _Counting(_Reading):
    def prompt(self, body: dict[str, Any]) -> ParsedRequest:
        given = fields_read(COUNT, body)
        parsed = values_parse({"model": given["model"]})
        return prompt_only(parsed, parsed.generation.prompt, RawPrompt(text=given["text"], param="text"))


async def prompt_render(request: HttpRequest, *, caller: Caller, username: str) -> dict[str, Any]:
    """Return the prompt of the `request` in the body, with what it leaves of the context. Raises ApiError.

    `max_tokens` is what the answer may take at most, None if that is the rest of the context.
    """
    read = await prompt_read(_known(request, caller), _Reading(username), _start)
    admitted = read.admitted
    return {
        "model": _full_name(read.generation),
        "prompt": admitted.prompt_text,
        "num_tokens": admitted.num_prompt_tokens,
        "context": admitted.context_length,
        "max_tokens": _reserve(read.generation.stop, (admitted.context_length or 0) - admitted.num_prompt_tokens),
        "num_messages": len(read.parsed.messages),
    }


async def text_count(request: HttpRequest, *, caller: Caller, username: str) -> dict[str, int]:
    """Return the number of tokens of the `text` in the body, taken as it is. Raises ApiError."""
    read = await prompt_read(_known(request, caller), _Counting(username), _start)
    return {"num_tokens": read.admitted.num_prompt_tokens}


def _known(request: HttpRequest, caller: Caller) -> HttpRequest:
    """Return a request whose caller is known, as the API has it behind its key."""
    request.lightcone_caller = caller
    return request


def _reserve(stop: StopRules, room: int) -> int | None:
    """Return the tokens that an answer may take at most, None if they are all that the context has left."""
    if stop.max_tokens is not None:
        return stop.max_tokens
    return stop.absent_max_tokens if stop.absent_max_tokens is not None and stop.absent_max_tokens < room else None


def _full_name(generation: GenerationRequest) -> str:
    return f"{generation.model}:{generation.adapter}" if generation.adapter else generation.model


async def _start(accepted: Accepted[ParsedRequest]) -> StartedRun:
    model = await model_ready(name=accepted.parsed.model, caller=accepted.caller)
    return await run_start_filled(accepted, by_model=model)
