"""Look up models by the names that clients send, with their condition, and refuse unknown ones with a hint."""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from redis.exceptions import RedisError

from chat.access.keys import Caller
from chat.catalog.services import (
    ModelEntry,
    adapters_for_caller_async,
    model_resolve_async,
    models_for_caller_async,
    weighted_for_caller_async,
)
from chat.errors import ApiError
from chat.relay.state.workers import STATE_ORDER, UNLOADED, ModelCondition, model_conditions
from chat.relay.web.dispatcher import dispatcher_of_loop
from engine.api import KINDS_OF_TASKS, Task

ANSWER_TIMEOUT_S = 2.0
MAX_NAMES = 10
MAX_NAME_CHARS = 200

_been_ready = threading.Event()
"""Set once this process has seen a model that serves."""
Conditions = Mapping[str, ModelCondition]


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model under one of its names, with its condition."""

    entry: ModelEntry
    name: str
    condition: ModelCondition

    @property
    def max_model_len(self) -> int | None:
        """Return the context length in tokens: the worker's, else the last known one; None before the first load."""
        return self.condition.max_model_len or self.entry.max_model_len


async def models_live() -> Conditions:
    """Return the condition of each model that has a worker, by name; of none while Valkey is away."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return model_conditions(await dispatcher_of_loop().workers())
    except (RedisError, OSError):
        return {}


async def installation_state() -> str:
    """Return the best state among the models: `unloaded` if there is no worker.

    `ready` if one serves, or would be loaded for the next request. While one is being loaded it is `ready` if there was
    a ready one before: requests wait for it.
    """
    states = {condition.state for condition in (await models_live()).values()}
    best = next((state for state in STATE_ORDER if state in states), "")
    if best == "ready":
        _been_ready.set()
    if best == "loading" and _been_ready.is_set():
        return "ready"
    return {"": UNLOADED.state, UNLOADED.state: "ready"}.get(best, best)


async def models_named(caller: Caller) -> list[NamedModel]:
    """Return the models of the caller, once under each of their names."""
    models, live = await models_for_caller_async(caller=caller), await models_live()
    named = [(name, model) for model in models for name in dict.fromkeys((model.name, *model.aliases))]
    named += await adapters_for_caller_async(caller=caller)
    named += await weighted_for_caller_async(caller=caller)
    return [NamedModel(model, name, live.get(model.name, UNLOADED)) for name, model in named]


async def model_named(sent: str, caller: Caller) -> NamedModel:
    """Return the model of that name, and the name that the answer gives it. Raises ApiError."""
    model = await model_resolve_async(name=sent, caller=caller)
    if model is None:
        raise await model_unknown(sent, caller)
    name = sent if sent in model.aliases else model.alias or model.full_name
    return NamedModel(model, name, (await models_live()).get(model.name, UNLOADED))


async def model_asked(sent: str | None, names: Iterable[str] | None, caller: Caller) -> ModelEntry:
    """Return the model that a request asks for. Raises ApiError.

    If `sent` may stand for several `names`, the first that exists counts, whether or not the caller may use it.
    """
    for name in names or (sent,):
        if await model_resolve_async(name=name) is not None:
            model = await model_resolve_async(name=name, caller=caller)
            if model is not None and caller.can_use_model(model.full_name):
                return model
            break
    raise await model_unknown(sent or "(default)", caller)


async def model_fallback(model: ModelEntry, caller: Caller) -> ModelEntry | None:
    """Return the model that answers in place of this one; None if there is none that the caller may use."""
    if not model.fallback:
        return None
    return await model_resolve_async(name=model.fallback, caller=caller)


async def model_transcriber(model: ModelEntry, caller: Caller) -> ModelEntry | None:
    """Return the model that writes down sound for this one; None if there is none that the caller may use."""
    if not model.transcriber:
        return None
    return await model_resolve_async(name=model.transcriber, caller=caller)


async def modalities_live(model: ModelEntry) -> Collection[str]:
    """Return what messages of the model may have beside text: as its worker says, else as last known."""
    return modalities_of(model, (await models_live()).get(model.name, UNLOADED))


async def models_that_take(modality: str, caller: Caller, *, by_transcriber: bool = False) -> list[str]:
    """Return the names of the caller's models whose messages may have it.

    `by_transcriber`: those that have sound written down by a model of the caller are among them.
    """
    models, live = await models_for_caller_async(caller=caller), await models_live()
    return [
        model.name
        for model in models
        if modality in modalities_of(model, live.get(model.name, UNLOADED))
        or (by_transcriber and await model_transcriber(model, caller) is not None)
    ]


def modalities_of(model: ModelEntry, condition: ModelCondition) -> Collection[str]:
    """Return what messages of a model in this condition may have beside text."""
    return model.modalities if condition.modalities is None else condition.modalities


async def model_unknown(name: str, caller: Caller) -> ApiError:
    """Return the error for a model that the caller has not. It lists usable names."""
    known = [model.name for model in await models_for_caller_async(caller=caller)]
    sentences = [f"The model '{name[:MAX_NAME_CHARS]}' does not exist or you do not have access to it."]
    if (similar := _similar(name, known)) is not None:
        sentences.append(f"Did you mean '{similar}'?")
    if known:
        more = f" and {len(known) - MAX_NAMES} more (GET /v1/models)" if len(known) > MAX_NAMES else ""
        sentences.append(f"You can use: {', '.join(known[:MAX_NAMES])}{more}.")
    return ApiError("model_not_found", " ".join(sentences), "model")


async def model_of_other_kind(message: str, task: Task, caller: Caller) -> ApiError:
    """Return the error for a model that cannot do a task, with the names of the caller's models that can."""
    models, live = await models_for_caller_async(caller=caller), await models_live()
    kinds = KINDS_OF_TASKS.get(task, ())
    able = [model.name for model in models if live.get(model.name, UNLOADED).kind in kinds]
    hint = f"You can use: {', '.join(able[:MAX_NAMES])}." if able else "No served model that you may use does this."
    return ApiError("invalid_value", f"{message}. {hint}", "model")


def _similar(name: str, known: list[str]) -> str | None:
    """Return the known name that differs in case only or is spelled almost alike."""
    by_folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS].casefold(), by_folded, n=1, cutoff=0.8)
    return by_folded[near[0]] if near else None
