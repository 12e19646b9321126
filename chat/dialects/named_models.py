"""Models by the names that clients give them."""

from __future__ import annotations

from collections.abc import Iterable

from chat.errors import ApiError
from chat.services.catalogue import ModelEntry, model_resolve_async, models_for_caller_async
from chat.services.keys import Caller


async def models_named(caller: Caller) -> list[tuple[ModelEntry, str]]:
    """The models that the caller may use, under each of the names that `model` takes."""
    models = await models_for_caller_async(caller=caller)
    return [(model, name) for model in models for name in dict.fromkeys((model.name, *model.aliases))]


async def model_named(sent: str, caller: Caller) -> tuple[ModelEntry, str]:
    """The model of that name, and the name that it is to have in the answer; raises ApiError."""
    model = await model_resolve_async(name=sent, caller=caller)
    if model is None:
        raise model_unknown(sent)
    return model, sent if sent in model.aliases else model.name


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
    raise model_unknown(sent or "(default)")


def model_unknown(name: str) -> ApiError:
    """One text for a model that does not exist and for one that the caller may not use."""
    return ApiError("model_not_found", f"The model '{name[:200]}' does not exist or you do not have access to it.", "model")
