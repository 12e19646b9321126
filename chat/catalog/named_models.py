"""Models by the names that clients give them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from chat.access.keys import Caller
from chat.catalog.health import models_live
from chat.catalog.services import ModelEntry, model_resolve_async, models_for_caller_async
from chat.errors import ApiError
from chat.relay.state.workers import UNLOADED, ModelCondition

MAX_NAMES = 10
MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model under one of the names that `model` takes, and how it is."""

    entry: ModelEntry
    name: str
    condition: ModelCondition

    @property
    def max_model_len(self) -> int | None:
        """The context in tokens: what its worker has room for, else what was last known; None before it was first loaded."""
        return self.condition.max_model_len or self.entry.max_model_len


async def models_named(caller: Caller) -> list[NamedModel]:
    """The models that the caller may use, under each of the names that `model` takes."""
    models, live = await models_for_caller_async(caller=caller), await models_live()
    return [
        NamedModel(model, name, live.get(model.name, UNLOADED))
        for model in models
        for name in dict.fromkeys((model.name, *model.aliases))
    ]


async def model_named(sent: str, caller: Caller) -> NamedModel:
    """The model of that name, and the name that it is to have in the answer; raises ApiError."""
    model = await model_resolve_async(name=sent, caller=caller)
    if model is None:
        raise await model_unknown(sent, caller)
    name = sent if sent in model.aliases else model.name
    return NamedModel(model, name, (await models_live()).get(model.name, UNLOADED))


async def model_asked(sent: str | None, names: Iterable[str] | None, caller: Caller) -> ModelEntry:
    """The model asked for; where `sent` may stand for several `names`, that of the first one there is, whether or not the caller may use
    it. Raises ApiError.
    """
    for name in names or (sent,):
        if await model_resolve_async(name=name) is not None:
            model = await model_resolve_async(name=name, caller=caller)
            if model is not None:
                return model
            break
    raise await model_unknown(sent or "(default)", caller)


async def model_unknown(name: str, caller: Caller) -> ApiError:
    """Make the error for a model that does not exist and for one that the caller may not use: one text, with the names that it may."""
    known = [model.name for model in await models_for_caller_async(caller=caller)]
    told = [f"The model '{name[:MAX_NAME_CHARS]}' does not exist or you do not have access to it."]
    if (meant := _meant(name, known)) is not None:
        told.append(f"Did you mean '{meant}'?")
    if known:
        more = f" and {len(known) - MAX_NAMES} more (GET /v1/models)" if len(known) > MAX_NAMES else ""
        told.append(f"You can use: {', '.join(known[:MAX_NAMES])}{more}.")
    return ApiError("model_not_found", " ".join(told), "model")


def _meant(name: str, known: list[str]) -> str | None:
    """Return the known name that differs in case only or is spelled almost alike."""
    by_folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name[:MAX_NAME_CHARS].casefold(), by_folded, n=1, cutoff=0.8)
    return by_folded[near[0]] if near else None
