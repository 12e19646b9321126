"""The routes that compute: chats, prompts and embeddings. Without a prompt they only wait for the model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponseBase

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.multi_run import RunGroup, group_start
from chat.api.answering.pipeline import Accepted, StartedRun, request_start, run_start
from chat.api.answering.streaming import run_answer
from chat.api.ollama.dialect import Embed, Embeddings
from chat.api.ollama.lines import span_ns, transport_of, unloaded
from chat.api.ollama.translation import ParsedAnswer, ParsedInputs
from chat.api.request.fields import bad_value
from chat.api.view import json_response
from chat.catalog.named_models import model_asked, model_named
from chat.errors import ApiError
from chat.relay.commands import unload_send_async
from engine.api import Completed, Embedded, Event

logger = logging.getLogger(__name__)


async def answer(request: HttpRequest, dialect: Any) -> HttpResponseBase:
    """Answer a chat or a prompt, with lines or with one object."""
    content = type(dialect).content
    accepted, run = await request_start(request, dialect, _start)
    if isinstance(run, str):
        return json_response(unloaded(run, content))
    return await run_answer(request, dialect, accepted, run, transport=transport_of(run.head, content))


async def _start(accepted: Accepted[ParsedAnswer]) -> StartedRun | str:
    """Start the run, or have the model unloaded and return its name."""
    if accepted.parsed.unloads:
        return await _unload(accepted.parsed, accepted.caller)
    await context_check(accepted.parsed, accepted.caller)
    return await run_start(accepted)


async def _unload(parsed: ParsedAnswer, caller: Caller) -> str:
    """Have every worker unload the model once its runs have ended. Raises ApiError without the right to that."""
    caller.require_right(str(Right.MODELS_MANAGE))
    model = await model_asked(parsed.model, parsed.model_names, caller)
    try:
        await unload_send_async(model.name)
    except Exception as error:
        logger.warning("The workers could not be asked to unload %s: %s", model.name, error)
        raise ApiError("overloaded", "The workers cannot be reached at the moment; please try again shortly.") from None
    return model.name


async def context_check(parsed: ParsedAnswer | ParsedInputs, caller: Caller) -> None:
    """Raise ApiError if the request needs a longer context than its model is served with, as far as that is known."""
    if parsed.num_ctx is None:
        return
    model = await model_asked(parsed.model, parsed.model_names, caller)
    served = (await model_named(model.name, caller)).max_model_len
    if served and parsed.num_ctx > served:
        message = f"must be at most {served}, the context that {model.name} is served with, got {parsed.num_ctx}"
        raise bad_value("options.num_ctx", f"{message}; leave it out, or send less")


async def embed(request: HttpRequest, dialect: Embed) -> HttpResponseBase:
    """Answer with the vectors of all inputs, in their order."""
    group, vectors, ended = await _vectors(request, dialect)
    arrived_at = min(one.timings.arrived_at for one in ended)
    body = {
        "model": group.runs[0].head.model,
        "embeddings": [vectors[index] for index in sorted(vectors)],
        "total_duration": span_ns(arrived_at, max((one.timings.ended_at or 0.0) for one in ended)),
        "load_duration": min(span_ns(arrived_at, one.timings.started_at) for one in ended),
        "prompt_eval_count": sum(one.usage.prompt_tokens for one in ended),
    }
    return json_response(body, headers=group.headers)


async def embeddings(request: HttpRequest, dialect: Embeddings) -> HttpResponseBase:
    """Answer with the vector of one text, as older clients read it."""
    group, vectors, _ = await _vectors(request, dialect)
    return json_response({"embedding": vectors.get(0, [])}, headers=group.headers)


async def _vectors(
    request: HttpRequest, dialect: Any
) -> tuple[RunGroup, Mapping[int, orjson.Fragment], list[Completed]]:
    """Read all runs of a request to their ends. Return the vectors by the number of their input. Raises ApiError."""
    _, group = await request_start(request, dialect, _group_start)
    request.lightcone_headers = group.headers
    vectors: dict[int, orjson.Fragment] = {}
    ended: list[Completed] = []
    try:
        while not group.is_over:
            taken = await group.next()
            if taken is None or not isinstance(taken[1], Event):
                continue
            index, payload = taken[0], taken[1].payload
            if isinstance(payload, Embedded):
                vectors[index] = orjson.Fragment(orjson.dumps(payload.vector))
            elif isinstance(payload, Completed):
                ended.append(payload)
    finally:
        group.leave()
    return group, vectors, ended


async def _group_start(accepted: Accepted[ParsedInputs]) -> RunGroup:
    await context_check(accepted.parsed, accepted.caller)
    return await group_start(accepted)
