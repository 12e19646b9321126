"""A prompt as the model sees it, for clients of vLLM and llama.cpp (docs/api/tokens.md): runs with `Task.READ`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from rest_framework import serializers

from chat.api.answering.pipeline import P
from chat.api.answering.streaming import ReadPrompt, prompt_read
from chat.api.openai.dialect import PromptFormat
from chat.api.request.fields import Array, Boolean, Text, bad_value, refuse
from chat.api.request.parse import fields_read, request_parse, unknown_names, values_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import ChatCompletionRequest, SharingRequest
from chat.api.request.text_schema import token_ids_read
from chat.api.view import json_response
from chat.errors import ApiError
from engine.api import GenerationRequest, PromptOptions, RawPrompt, Task

LIMITS = settings.LIGHTCONE_LIMITS
MAX_CHARS = LIMITS.max_tokenize_chars
CHARS_PER_ID = 4


class TokenIds(Array):
    def __init__(self, **kwargs: Any) -> None:
        item = {"type": "integer", "minimum": 0}
        super().__init__(
            item_schema=item, max_items=max(1, MAX_CHARS // CHARS_PER_ID), is_required=True, nullable=False, **kwargs
        )

    def run_validation(self, data: Any = serializers.empty) -> tuple[int, ...]:
        if data is serializers.empty:
            raise refuse("missing_required_parameter", "is required: an array of token ids")
        return token_ids_read(super().run_validation(data))


class TokenizeRequest(SharingRequest):
    prompt = Text("A text, taken as it is.", max_chars=MAX_CHARS)
    content = Text("The same in llama.cpp's form, whose answer is shorter.", max_chars=MAX_CHARS)
    add_special_tokens = Boolean("Let the tokenizer add its own tokens. Absent: true for a prompt, false for messages.")
    add_special = Boolean("The same beside content.", default=False)
    parse_special = Boolean("Beside content: false takes control tokens that it spells as ordinary text.", default=True)
    return_token_strs = Boolean("Return the text of each token too.", default=False)
    with_pieces = Boolean("Beside content: each token with its text.", default=False)

    shared = ("model", "request_id", "user")


class DetokenizeRequest(SharingRequest):
    tokens = TokenIds(help_text="Token ids.")

    shared = ("model", "request_id", "user")


TOKENIZE, DETOKENIZE = TokenizeRequest(), DetokenizeRequest()
CHAT_FIELDS = frozenset(ChatCompletionRequest().fields)
FORMS = ("messages", "prompt", "content")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTokenize(ParsedRequest):
    form: str
    """The one of `FORMS` that was sent."""
    with_strings: bool
    """The answer holds the texts of the tokens."""


class Tokenize(PromptFormat):
    def parse(self, body: dict[str, Any]) -> ParsedTokenize:
        form = _form(body)
        given = fields_read(TOKENIZE, body)
        adds_special = given["add_special"] if form == "content" else given["add_special_tokens"]
        if form == "messages":
            # Without fields that matter to an answer alone, and `add_special_tokens`, which may be null here.
            chat = {name: value for name, value in body.items() if name in PROMPT_FIELDS}
            parsed, raw = request_parse(chat), None
        else:
            parsed = values_parse({name: given[name] for name in TokenizeRequest.shared})
            is_ordinary = form == "content" and not given["parse_special"]
            raw, adds_special = (
                RawPrompt(text=given[form], param=form, is_ordinary=is_ordinary),
                adds_special is not False,
            )
        with_strings = bool(given["with_pieces"] if form == "content" else given["return_token_strs"])
        options = replace(
            parsed.generation.prompt,
            add_special_tokens=bool(adds_special),
            returns_ids=True,
            returns_tokens=with_strings,
        )
        read = prompt_only(parsed, options, raw)
        ignored = unknown_names(body, {*TOKENIZE.fields, *CHAT_FIELDS})
        return ParsedTokenize.extending(
            read, delivery=replace(read.delivery, ignored=ignored), form=form, with_strings=with_strings
        )


class Detokenize(PromptFormat):
    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        given = fields_read(DETOKENIZE, body)
        raw = RawPrompt(token_ids=given.pop("tokens"), param="tokens")
        parsed = values_parse(given, ignored=unknown_names(body, DETOKENIZE.fields))
        return prompt_only(parsed, replace(parsed.generation.prompt, returns_text=True), raw)


class Render(PromptFormat):
    """A chat completion's body, checked as one; only its prompt is made."""

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        return rendered(request_parse(body))


def rendered(parsed: ParsedRequest) -> ParsedRequest:
    """Return the request with its prompt made, as ids and as text."""
    return prompt_only(parsed, replace(parsed.generation.prompt, returns_ids=True, returns_text=True))


def prompt_only(parsed: ParsedRequest, prompt: PromptOptions, raw: RawPrompt | None = None) -> ParsedRequest:
    """Return the request with its prompt read and not answered."""
    return replace(parsed, generation=replace(parsed.generation, task=Task.READ, raw=raw, prompt=prompt))


def _form(body: dict[str, Any]) -> str:
    sent = [name for name in FORMS if body.get(name) is not None]
    if not sent:
        message = "prompt is required: send prompt, messages, or content in llama.cpp's form"
        raise ApiError("missing_required_parameter", message, "prompt")
    if len(sent) > 1:
        raise bad_value(sent[1], f"cannot be combined with {sent[0]}; send one of them")
    return sent[0]


PROMPT_FIELDS = frozenset(
    """
    messages model user request_id tools functions tool_choice function_call documents verbosity
    add_generation_prompt continue_final_message chat_template chat_template_kwargs mm_processor_kwargs
    reasoning_effort truncate_prompt_tokens truncation_side media_io_kwargs
    """.split()
)
"""The fields of a chat completion that make its prompt."""

TOKENIZE_DIALECT, DETOKENIZE_DIALECT, RENDER_DIALECT = Tokenize(), Detokenize(), Render()

PIECES_AT_ONCE = 4_096


async def tokenize(request: HttpRequest, dialect: Tokenize) -> HttpResponseBase:
    read = await prompt_read(request, dialect)
    ids, texts = read.admitted.prompt_ids or (), read.admitted.prompt_tokens
    if read.parsed.form == "content":
        wants_pieces = read.parsed.with_strings
        return _answer(
            read, {"tokens": await asyncio.to_thread(pieces_json, ids, texts or ()) if wants_pieces else ids}
        )
    body = {"count": len(ids), "max_model_len": read.admitted.context_length, "tokens": ids, "token_strs": texts}
    return _answer(read, body)


def pieces_json(ids: Sequence[int], texts: Sequence[str]) -> orjson.Fragment:
    """Return the tokens with their texts, written in slices: a million objects would hold up the loop, even from a
    thread.
    """
    written = []
    for start in range(0, len(ids), PIECES_AT_ONCE):
        some = slice(start, start + PIECES_AT_ONCE)
        pieces = [{"id": token_id, "piece": text} for token_id, text in zip(ids[some], texts[some], strict=True)]
        written.append(orjson.dumps(pieces)[1:-1])
    return orjson.Fragment(b"[" + b",".join(written) + b"]")


async def detokenize(request: HttpRequest, dialect: Detokenize) -> HttpResponseBase:
    read = await prompt_read(request, dialect)
    text = read.admitted.prompt_text or ""
    return _answer(read, {"prompt": text, "content": text})


async def render(request: HttpRequest, dialect: Render) -> HttpResponseBase:
    read = await prompt_read(request, dialect)
    admitted = read.admitted
    body = {
        "object": "chat.completion.prompt",
        "model": read.generation.model,
        "prompt": admitted.prompt_text,
        "token_ids": admitted.prompt_ids,
        "num_tokens": admitted.num_prompt_tokens,
        "max_model_len": admitted.context_length,
        "sampling_params": sampling_params(read.generation, admitted.num_prompt_tokens, admitted.context_length),
    }
    return _answer(read, body)


def sampling_params(
    generation: GenerationRequest, num_prompt_tokens: int, context_length: int | None
) -> dict[str, Any]:
    """Return how the answer would be drawn and ended. `max_tokens` is null if no room is left."""
    sampling, stop = generation.sampling, generation.stop
    room = max(0, (context_length or 0) - num_prompt_tokens)
    wanted = stop.absent_max_tokens if stop.max_tokens is None else stop.max_tokens
    drawn = "temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty seed"
    return {
        **{name: getattr(sampling, name) for name in drawn.split()},
        "max_tokens": min(room, room if wanted is None else wanted) or None,
        "min_tokens": stop.min_tokens,
        "n": generation.num_choices,
        "stop": stop.stop,
        "stop_token_ids": stop.stop_token_ids,
        "ignore_eos": stop.ignore_eos,
        "skip_special_tokens": stop.skip_special_tokens,
    }


def _answer(read: ReadPrompt[P], body: dict[str, Any]) -> HttpResponse:
    return json_response(body, headers=read.headers)
