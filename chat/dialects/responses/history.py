"""What a response goes on from: a previous response, and items that the input refers to. Both are in the store, of the caller's project."""

from __future__ import annotations

from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.conf import settings

from chat.dialects.responses.ids import response_of_item
from chat.dialects.responses.kept import response_refresh
from chat.dialects.responses.messages import Item, messages_of
from chat.errors import ApiError
from chat.services.keys import Caller
from chat.services.stored import AnswerUnknown, StoredAnswer, StoredKind, StoredState, answer_find

PREVIOUS = "previous_response_id"


async def history_add(values: dict[str, Any], caller: Caller) -> None:
    """Put what was said before into the values: all `items`, and the messages they amount to. Raises ApiError."""
    previous = await _previous(values["given"][PREVIOUS], caller)
    given, items = values["items"], list(previous)
    paths = [PREVIOUS] * len(previous)
    for index, item in enumerate(given):
        items.append(await _referred(item, previous, caller) if item["type"] == "item_reference" else item)
        paths.append(f"input.{index}")
    values["items"] = items
    values["messages"], values["names"] = messages_of(values["given"]["instructions"], zip(paths, items, strict=True))
    limit = settings.LIGHTCONE_LIMITS.max_messages
    if not values["messages"]:
        raise ApiError("missing_required_parameter", "input is required: a string, or a list of items", "input")
    if len(values["messages"]) > limit:
        raise ApiError("invalid_value", f"input must have at most {limit} messages with those before it; begin a new conversation", "input")


async def _previous(response_id: str | None, caller: Caller) -> list[Item]:
    if response_id is None:
        return []
    row = await _find(response_id, caller)
    if row is not None and row.state == StoredState.UNFINISHED:
        row = await response_refresh(row)
        if row.state == StoredState.UNFINISHED:
            raise ApiError("invalid_value", f"{PREVIOUS} names a response that is not finished yet; wait for its end", PREVIOUS)
    if row is None:
        message = f"{PREVIOUS} must be the id of a stored response of this project, which '{response_id[:200]}' is not, or not any more"
        raise ApiError("invalid_value", message, PREVIOUS)
    return _items_of(row)


async def _referred(reference: Item, previous: list[Item], caller: Caller) -> Item:
    wanted = reference["id"]
    response_id = response_of_item(wanted)
    row = await _find(response_id, caller) if response_id is not None else None
    known = previous + (_items_of(row) if row is not None else [])
    found = next((item for item in known if item["id"] == wanted), None)
    if found is None:
        path = f"{reference['path']}.id"
        raise ApiError(
            "invalid_value", f"{path} must be the id of an item of a stored response of this project, got '{wanted[:200]}'", path
        )
    return found


async def _find(response_id: str, caller: Caller) -> StoredAnswer | None:
    find = database_sync_to_async(answer_find)
    try:
        return await find(project_id=caller.project_id, kind=StoredKind.RESPONSE, public_id=response_id)
    except AnswerUnknown:
        return None


def _items_of(row: StoredAnswer) -> list[Item]:
    """All that a response knows: what it was asked, with what was before, and what it said."""
    before: list[Item] = orjson.loads(row.request)["items"]
    return before + (orjson.loads(row.answer)["output"] if row.answer else [])
