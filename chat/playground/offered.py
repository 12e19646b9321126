"""The models that chat, as the page's list shows them, and the act of loading one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from redis.exceptions import RedisError

from chat.access.keys import Caller
from chat.api.request.schema import MAX_TOKENS
from chat.catalog import acts
from chat.catalog.model_facts import model_facts
from chat.catalog.named_models import modalities_of, model_asked, models_live
from chat.catalog.prices import TOKENS_PER_PRICE, Prices, prices_now
from chat.catalog.services import ModelEntry, models_for_caller_async, sampling_defaults_effective
from chat.errors import ApiError
from chat.relay.state.workers import UNLOADED, ModelCondition
from engine.api import ModelKind

TEXT, AUDIO = "text", "audio"
READY, FAILED = "ready", "failed"


async def models_offered(*, caller: Caller, sees_reasons: bool) -> list[dict[str, Any]]:
    """Return the models that chat and that the caller may use, the default first, each followed by its adapters.

    `sees_reasons`: why one failed, which may name files.
    """
    entries = [
        replace(entry, adapter=adapter)
        for entry in await models_for_caller_async(caller=caller)
        for adapter in ("", *entry.adapters)
    ]
    entries = [entry for entry in entries if caller.can_use_model(entry.full_name)]
    live = await models_live()
    prices = await database_sync_to_async(prices_now)([entry.name for entry in entries])
    names = {name for entry in entries for name in (entry.full_name, *entry.aliases)}

    def described() -> list[dict[str, Any]]:
        """Reads the heads of files, once while they stay as they are."""
        found = [
            model_object(entry, live.get(entry.name, UNLOADED), prices.get(entry.name), sees_reasons=sees_reasons)
            for entry in entries
        ]
        for entry, model in zip(entries, found, strict=True):
            if model is not None and entry.transcriber in names and AUDIO not in model["modalities"]:
                model["modalities"] = (*model["modalities"], AUDIO)
        return [model for model in found if model is not None]

    return await asyncio.to_thread(described)


def model_object(
    entry: ModelEntry, condition: ModelCondition, prices: Prices | None, *, sees_reasons: bool
) -> dict[str, Any] | None:
    """Return what the page knows of a model; None of one that does not chat."""
    facts = model_facts(entry.path).reported(condition.kind, entry.modalities)
    if facts.kind != ModelKind.CHAT:
        return None
    context = condition.max_model_len or entry.max_model_len or facts.context or None
    return {
        "id": entry.full_name,
        "is_default": entry.is_default and not entry.adapter,
        "state": condition.state,
        "phase": condition.phase,
        "fraction": condition.fraction,
        "reason": condition.reason if sees_reasons and condition.state == FAILED else "",
        "context": context,
        "max_output": min(MAX_TOKENS, context or MAX_TOKENS),
        "modalities": (TEXT, *modalities_of(entry, condition)),
        "capabilities": facts.abilities,
        "price": None if prices is None else price_object(prices),
        "defaults": sampling_defaults_effective(entry.sampling_defaults),
        "system_prompt": entry.system_prompt or None,
        "deprecated_at": entry.deprecated_at,
        "aliases": () if entry.adapter else entry.aliases,
    }


def price_object(prices: Prices) -> dict[str, Any]:
    return {
        "prompt": f"{prices.input.normalize():f}",
        "cached": f"{prices.cached.normalize():f}",
        "completion": f"{prices.output.normalize():f}",
        "currency": settings.LIGHTCONE_CURRENCY,
        "per_tokens": TOKENS_PER_PRICE,
    }


async def model_load(*, name: str, caller: Caller) -> ModelCondition:
    """Have a worker load a model, as a request for it would, and return its condition of now. Raises ApiError."""
    model = await model_asked(name, None, caller)
    condition = (await models_live()).get(model.name)
    if condition is None:
        message = f"No worker has the files of {model.name!r}: an administrator can start one that has."
        raise ApiError("model_unloaded", message, "model")
    if condition.state in (UNLOADED.state, FAILED):
        try:
            await database_sync_to_async(acts.model_load, thread_sensitive=False)(name=model.name)
        except (RedisError, OSError):
            raise ApiError("overloaded", "The server cannot load models at the moment; please try again.") from None
    return condition


async def model_ready(*, name: str | None, caller: Caller) -> ModelEntry:
    """Return a model that is loaded. Raises ApiError 409 for one that is not, and asks for no load."""
    model = await model_asked(name, None, caller)
    condition = (await models_live()).get(model.name, UNLOADED)
    if condition.state == READY:
        return model
    state = f"is loading, {condition.fraction:.0%}" if condition.state == "loading" else f"is {condition.state}"
    message = (
        f"The model {model.full_name!r} {state}, and only a loaded one reads prompts; load it, or send the request"
    )
    raise ApiError("model_not_loaded", f"{message}, which does.", "model")
