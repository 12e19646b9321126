"""Lists of models as Scale's clients read them: paged in /v4, all that chat in /v5/chat/completions, by cursor in /v5."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.dialects.dialect import Door
from chat.dialects.scale.model_names import model_candidates, model_vendor_name
from chat.dialects.view import caller_require, json_response, model_unknown
from chat.errors import ApiError
from chat.services.catalogue import ModelEntry, model_resolve_async, models_for_caller_async
from chat.services.health import workers_live
from chat.services.keys import Caller

USUAL_ITEMS, MAX_ITEMS = 100, 10_000
MAX_PAGE = 10**9
VENDOR = "model_zoo"
"""Of the words that the /v5 clients know, the one that fits what a server hosts itself."""


async def models_list(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    """`page` from 1 and `limit`; a page past the end is empty, which is how the client knows that it has read all."""
    caller = await caller_require(request, dialect)
    page, limit = _number(request, "page", 1, MAX_PAGE), _number(request, "limit", USUAL_ITEMS, MAX_ITEMS)
    models = await models_for_caller_async(caller=caller)
    items = [_instance(model, caller) for model in models[(page - 1) * limit : page * limit]]
    return json_response({"items": items, "current_page": page, "total_item_count": len(models), "items_per_page": limit})


async def model_retrieve(request: HttpRequest, dialect: Door, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    for name in model_candidates(model_id):
        if await model_resolve_async(name=name) is not None:
            model = await model_resolve_async(name=name, caller=caller)
            if model is not None:
                return json_response(_instance(model, caller))
            break
    raise model_unknown(model_id)


async def chat_models_list(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    ready = {worker.model for worker in await workers_live() if worker.state == "ready"}
    items = [
        {
            "model_name": model.name,
            "model_type": "chat_completion",
            "model_vendor": VENDOR,
            "model_availability": "available" if model.name in ready else "unavailable",
        }
        for model in await models_for_caller_async(caller=caller)
    ]
    return json_response({"object": "list", "items": items})


async def models_page_list(request: HttpRequest, dialect: Door) -> HttpResponseBase:
    """`limit` models after `starting_after`, or before `ending_before`; both are ids of this list."""
    caller = await caller_require(request, dialect)
    limit = _number(request, "limit", USUAL_ITEMS, MAX_ITEMS)
    models = await models_for_caller_async(caller=caller)
    after, before = _place(request, "starting_after", models), _place(request, "ending_before", models)
    left = models[after + 1 if after is not None else 0 : before]
    shown = left[-limit:] if before is not None and after is None else left[:limit]
    return json_response({"items": [_page_item(model) for model in shown], "has_more": len(shown) < len(left)})


def _instance(model: ModelEntry, caller: Caller) -> dict[str, Any]:
    return {
        "id": model_vendor_name(model.name),
        "account_id": str(caller.org_id),
        "name": model.name,
        "model_type": "CHAT_COMPLETION",
        "created_at": _moment(model),
        "created_by_identity_type": "user",
        "created_by_user_id": model.owned_by,
        "deployment_count": 1,
        "request_schema": {},
        "response_schema": {},
        "supports_multi_turn": True,
    }


def _page_item(model: ModelEntry) -> dict[str, Any]:
    return {
        "id": model_vendor_name(model.name),
        "name": model.name,
        "object": "model",
        "created_at": _moment(model),
        "created_by_identity_type": "user",
        "created_by_user_id": model.owned_by,
        "model_type": "chat_completion",
        "model_vendor": VENDOR,
        "status": "ready",
    }


def _moment(model: ModelEntry) -> str:
    return datetime.fromtimestamp(model.created_at, UTC).isoformat()


def _number(request: HttpRequest, name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most` in the query; raises ApiError."""
    text = request.GET.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise ApiError("invalid_value", f"{name} must be a whole number from 1 to {most}, got {text[:200]!r}", name)
    return int(text)


def _place(request: HttpRequest, name: str, models: list[ModelEntry]) -> int | None:
    """Where the model stands that the query names; raises ApiError."""
    sent = request.GET.get(name)
    if not sent:
        return None
    place = next((place for place, model in enumerate(models) if sent in (model.name, model_vendor_name(model.name))), None)
    if place is None:
        raise ApiError("invalid_value", f"{name} must be the id of a model of this list, got {sent[:200]!r}", name)
    return place
