"""Ids of responses and of their items.

The id of an item contains that of its response, so that references can be followed.
"""

from __future__ import annotations

import re
import secrets

RESPONSE_PREFIX = "resp_"
PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_"}
ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{32})[io][0-9a-f]{4}", re.ASCII)


def response_id_create() -> str:
    return RESPONSE_PREFIX + secrets.token_hex(16)


def item_id(kind: str, response_id: str, index: int, *, is_input: bool = False) -> str:
    """Return the id of the item at `index` of the output, or of the input, of a response."""
    return f"{PREFIXES[kind]}{response_id.removeprefix(RESPONSE_PREFIX)}{'i' if is_input else 'o'}{index:04x}"


def response_of_item(item: str) -> str | None:
    """Return the id of the response that has the item; None if `item` is not such an id."""
    match = ITEM_ID.fullmatch(item)
    return None if match is None else RESPONSE_PREFIX + match[1]
