"""The history that a response continues: a previous response, and items that the input refers to.

Both are in the project's store. A short request may refer to much, so the history is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import orjson
from django.conf import settings

from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted
from chat.api.answering.storage import answer_stored
from chat.api.request.fields import bad_value
from chat.api.responses.ids import response_of_item
from chat.api.responses.kept import response_refresh
from chat.api.responses.messages import Item, messages_of
from chat.api.responses.schema import ParsedResponse
from chat.api.stored.services import StoredAnswer, StoredKind, StoredState
from chat.api.view import run_in_thread_if_large
from chat.errors import ApiError

PREVIOUS = "previous_response_id"
MAX_REFERRED = 64
"""The most other responses that the items of one request may come from."""


async def history_add(accepted: Accepted[ParsedResponse]) -> Accepted[ParsedResponse]:
    """Return the request with all `items`, earlier ones included, their messages and their size. Raises ApiError."""
    parsed = accepted.parsed
    previous, num_previous_bytes = await _previous(parsed.previous_response_id, accepted.caller)
    found = await _referred(parsed.items, previous, accepted.caller)
    num_found_bytes = await run_in_thread_if_large(num_previous_bytes, _num_bytes, parsed.items, found)
    num_bytes = accepted.num_bytes + num_previous_bytes + num_found_bytes
    parsed = await run_in_thread_if_large(num_bytes, _with_history, parsed, previous, found)
    limit = settings.LIGHTCONE_LIMITS.max_messages
    if not parsed.messages:
        raise ApiError("missing_required_parameter", "input is required: a string, or a list of items", "input")
    if len(parsed.messages) > limit:
        raise bad_value("input", f"must have at most {limit} messages with those before it; begin a new conversation")
    return replace(accepted, parsed=parsed, num_bytes=num_bytes)


def _with_history(parsed: ParsedResponse, previous: list[Item], found: Mapping[str, Item]) -> ParsedResponse:
    given = parsed.items
    items = previous + [found[item["id"]] if item["type"] == "item_reference" else item for item in given]
    paths = [PREVIOUS] * len(previous) + [f"input.{index}" for index in range(len(given))]
    messages, origins = messages_of(parsed.instructions, zip(paths, items, strict=True))
    return replace(parsed, items=items).with_messages(messages, origins)


async def _previous(response_id: str | None, caller: Caller) -> tuple[list[Item], int]:
    """Return the items before the input, and their size in bytes."""
    if response_id is None:
        return [], 0
    row = await answer_stored(response_id, kind=str(StoredKind.RESPONSE), caller=caller)
    if row is not None and row.state == StoredState.UNFINISHED:
        row = await response_refresh(row)
        if row.state == StoredState.UNFINISHED:
            raise bad_value(PREVIOUS, "names a response that is not finished yet; wait for its end")
    if row is None:
        problem = f"which '{response_id[:200]}' is not, or not any more"
        raise bad_value(PREVIOUS, f"must be the id of a stored response of this project, {problem}")
    num_bytes = len(row.request) + len(row.answer)
    return await run_in_thread_if_large(num_bytes, _items_of, row), num_bytes


async def _referred(given: Iterable[Item], previous: list[Item], caller: Caller) -> dict[str, Item]:
    """Return the items that are referred to, by id. Each response is read once."""
    references: dict[str, str] = {}
    for item in given:
        if item["type"] == "item_reference":
            references.setdefault(item["id"], item["path"])
    found = {item["id"]: item for item in reversed(previous) if item["id"] in references}
    response_ids = dict.fromkeys(response_of_item(wanted) for wanted in references if wanted not in found)
    if len(response_ids) > MAX_REFERRED:
        problem = f"must refer to items of at most {MAX_REFERRED} responses, got {len(response_ids)}"
        raise bad_value("input", f"{problem}; send the items themselves")
    for response_id in response_ids:
        row = None
        if response_id is not None:
            row = await answer_stored(response_id, kind=str(StoredKind.RESPONSE), caller=caller)
        items = [] if row is None else await run_in_thread_if_large(len(row.request) + len(row.answer), _items_of, row)
        for item in items:
            if item["id"] in references:
                found.setdefault(item["id"], item)
    for wanted, at in references.items():
        if wanted not in found:
            problem = f"must be the id of an item of a stored response of this project, got '{wanted[:200]}'"
            raise bad_value(f"{at}.id", problem)
    return found


def _num_bytes(given: Iterable[Item], found: Mapping[str, Item]) -> int:
    """Return the size of all references, in bytes. Raises ApiError if no body could be that large."""
    sizes = {wanted: len(orjson.dumps(item)) for wanted, item in found.items()}
    num_bytes = sum(sizes[item["id"]] for item in given if item["type"] == "item_reference")
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    if num_bytes > limit:
        problem = f"must refer to at most {limit} bytes of items, got {num_bytes}"
        raise bad_value("input", f"{problem}; refer to fewer, or to each once")
    return num_bytes


def _items_of(row: StoredAnswer) -> list[Item]:
    """Return the items of a response: its history, its input and its output."""
    before: list[Item] = orjson.loads(row.request)["items"]
    return before + (orjson.loads(row.answer)["output"] if row.answer else [])
