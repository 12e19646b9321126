"""`/tokenize`, `/detokenize`, `/v1/chat/completions/render`: what a prompt is to the model, in the answers of vLLM and llama.cpp."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from chat.api.answering.pipeline import P
from chat.api.answering.streaming import ReadPrompt, prompt_read
from chat.api.openai.token_requests import Detokenize, Render, Tokenize
from chat.api.view import json_response
from engine.api import GenerationRequest

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
    """The array of tokens with their texts, in slices: a million objects would hold up everybody's events, even from a thread."""
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
    """How the answer would be drawn and ended, defaults of the model and of the server included. `max_tokens` null: no room is left."""
    sampling, stop = generation.sampling, generation.stop
    room = max(0, (context_length or 0) - num_prompt_tokens)
    wanted = stop.absent_max_tokens if stop.max_tokens is None else stop.max_tokens
    names = (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
    )
    return {
        **{name: getattr(sampling, name) for name in names},
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
