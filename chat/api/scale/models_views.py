"""Lists of models as Scale's clients read them: by page in /v4, by cursor in /v5. Sort orders have no effect."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.access.keys import Caller
from chat.api.dialect import ErrorFormat
from chat.api.queries import query_integer
from chat.api.request.fields import echo
from chat.api.scale.names import model_candidates, model_vendor_name
from chat.api.view import caller_require, json_response
from chat.catalog.named_models import Conditions, model_asked, models_live
from chat.catalog.services import ModelEntry, models_for_caller_async
from chat.errors import ApiError
from chat.relay.state.workers import UNLOADED

USUAL_ITEMS, MAX_ITEMS = 100, 10_000
MAX_PAGE = 10**9
VENDOR = "model_zoo"
"""The vendor that fits self-hosted models, of those that the /v5 clients know."""
OLDER_TYPE, NEWER_TYPE = "CHAT_COMPLETION", "chat_completion"
"""The type of all models here, as each generation spells it."""
STATUSES = {"ready": "ready", "loading": "deploying", "draining": "deploying"}
"""States as the /v5 clients name them; `failed` is the only other one that they know."""


async def models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Answer with the page `page`, from 1, of `limit` models.

    One past the end is empty, by which clients know the end.
    """
    caller = await caller_require(request, dialect)
    page, limit = query_integer(request, "page", 1, minimum=1, maximum=MAX_PAGE), _limit(request)
    models = await models_for_caller_async(caller=caller) if _asks_for(request, "model_type", OLDER_TYPE) else []
    live = await models_live()
    items = [_instance(model, caller, live) for model in models[(page - 1) * limit : page * limit]]
    return json_response(
        {"items": items, "current_page": page, "total_item_count": len(models), "items_per_page": limit}
    )


async def model_retrieve(request: HttpRequest, dialect: ErrorFormat, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    model = await model_asked(model_id, model_candidates(model_id), caller)
    return json_response(_instance(model, caller, await models_live()))


async def chat_models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Answer with the models that can be asked now."""
    models, _ = await _cursor_page(request, await caller_require(request, dialect))
    live = await models_live()
    items = [
        {
            "model_name": model.name,
            "model_type": NEWER_TYPE,
            "model_vendor": VENDOR,
            "model_availability": "available" if _state(model, live) == "ready" else "unavailable",
            "state": _state(model, live),
        }
        for model in models
    ]
    return json_response({"object": "list", "items": items})


async def models_page_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    models, has_more = await _cursor_page(request, await caller_require(request, dialect))
    live = await models_live()
    return json_response({"items": [_page_item(model, live) for model in models], "has_more": has_more})


async def _cursor_page(request: HttpRequest, caller: Caller) -> tuple[list[ModelEntry], bool]:
    """Return `limit` models behind `starting_after` or before `ending_before`, and whether there are more.

    `model_vendor` and `name` filter the list. Raises ApiError.
    """
    limit = _limit(request)
    models = await models_for_caller_async(caller=caller)
    after, before = _place(request, "starting_after", models), _place(request, "ending_before", models)
    left = [
        model
        for model in models[after + 1 if after is not None else 0 : before]
        if _asks_for(request, "model_vendor", VENDOR) and _asks_for(request, "name", model.name)
    ]
    shown = left[-limit:] if before is not None and after is None else left[:limit]
    return shown, len(shown) < len(left)


def _state(model: ModelEntry, live: Conditions) -> str:
    return live.get(model.name, UNLOADED).state


def _instance(model: ModelEntry, caller: Caller, live: Conditions) -> dict[str, Any]:
    return {
        "id": model_vendor_name(model.name),
        "account_id": str(caller.org_id),
        "name": model.name,
        "model_type": OLDER_TYPE,
        **_created(model),
        "deployment_count": 1,
        "request_schema": {},
        "response_schema": {},
        "supports_multi_turn": True,
        "state": _state(model, live),
    }


def _page_item(model: ModelEntry, live: Conditions) -> dict[str, Any]:
    return {
        "id": model_vendor_name(model.name),
        "name": model.name,
        "object": "model",
        **_created(model),
        "model_type": NEWER_TYPE,
        "model_vendor": VENDOR,
        "status": STATUSES.get(_state(model, live), "failed"),
        "state": _state(model, live),
    }


def _created(model: ModelEntry) -> dict[str, Any]:
    return {
        "created_at": datetime.fromtimestamp(model.created_at, UTC).isoformat(),
        "created_by_identity_type": "user",
        "created_by_user_id": model.owned_by,
    }


def _limit(request: HttpRequest) -> int:
    return query_integer(request, "limit", USUAL_ITEMS, minimum=1, maximum=MAX_ITEMS)


def _asks_for(request: HttpRequest, name: str, value: str) -> bool:
    """Return True if the query wants this value, or any."""
    return request.GET.get(name) in (None, "", value)


def _place(request: HttpRequest, name: str, models: list[ModelEntry]) -> int | None:
    sent = request.GET.get(name)
    if not sent:
        return None
    place = next(
        (place for place, model in enumerate(models) if sent in (model.name, model_vendor_name(model.name))), None
    )
    if place is None:
        raise ApiError("invalid_value", f"{name} must be the id of a model of this list, got {echo(sent)}", name)
    return place
