"""The list of models as Anthropic's clients read it, page by page (model_lists.py)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from chat.api.dialect import ErrorFormat
from chat.api.request.fields import echo
from chat.api.view import caller_require, json_response
from chat.catalog.named_models import NamedModel, model_named, models_named
from chat.errors import ApiError

DEFAULT_LIMIT, MAX_LIMIT = 20, 1_000


async def models_list(request: HttpRequest, dialect: ErrorFormat) -> HttpResponseBase:
    """Answer with all names that `model` takes, after `after_id` or before `before_id`, at most `limit` of them."""
    caller = await caller_require(request, dialect)
    limit = _limit(request.GET.get("limit"))
    models = [model_object(named) for named in await models_named(caller)]
    after, before = request.GET.get("after_id"), request.GET.get("before_id")
    start = _place(models, after, "after_id") + 1 if after else 0
    stop = _place(models, before, "before_id") if before else len(models)
    window = models[start:stop]
    page = window[-limit:] if before and not after else window[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return json_response({"data": page, "has_more": len(window) > len(page), **ends})


async def model_retrieve(request: HttpRequest, dialect: ErrorFormat, model_id: str) -> HttpResponseBase:
    caller = await caller_require(request, dialect)
    return json_response(model_object(await model_named(model_id, caller)))


def model_object(model: NamedModel) -> dict[str, Any]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(model.entry.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.max_model_len,
        "state": model.condition.state,
    }


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_LIMIT):
        raise ApiError("invalid_value", f"limit must be from 1 to {MAX_LIMIT}, got {echo(text)}", "limit")
    return int(text)


def _place(models: list[dict[str, Any]], model_id: str, param: str) -> int:
    place = next((index for index, model in enumerate(models) if model["id"] == model_id), None)
    if place is None:
        raise ApiError("invalid_value", f"{param} must be the id of a model in the list, got {echo(model_id)}", param)
    return place
