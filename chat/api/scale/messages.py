"""Messages as Scale's clients write them, and the cut of `memory_strategy`. The Lightcone request checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chat.api.request.fields import Object, echo, refuse

KIND = "last_k"
KEPT_ROLES = ("system", "developer")
RESULT_ROLES = ("tool", "function")


class MemoryStrategy(Object):
    """`last_k` in any of its three shapes. Reads to k."""

    json_schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": [KIND]},
            "type": {"type": "string", "enum": [KIND]},
            "k": {"type": "integer", "minimum": 1},
            "params": {"type": "object", "properties": {"k": {"type": "integer", "minimum": 1}}},
        },
    }

    def to_internal_value(self, data: Any) -> int:
        strategy = super().to_internal_value(data)
        kinds = [strategy[key] for key in ("name", "type") if strategy.get(key) is not None]
        for kind in kinds:
            if kind != KIND:
                raise refuse("invalid_value", f"must be of the kind {KIND}, got {echo(kind)}")
        params = strategy.get("params")
        if not isinstance(params, dict | None):
            raise refuse("invalid_type", f"must be an object, got {echo(params)}", "params")
        given = [place["k"] for place in (strategy, params or {}) if place.get("k") is not None]
        if not given:
            raise refuse("missing_required_parameter", "is required: how many messages are kept", "k")
        for k in given:
            if type(k) is not int:
                raise refuse("invalid_type", f"must be a JSON integer, got {echo(k)}", "k")
            if k < 1:
                raise refuse("invalid_value", f"must be at least 1, got {k}", "k")
        if given[0] != given[-1]:
            raise refuse("invalid_value", f"has k twice, as {given[0]} and as {given[1]}; send one")
        return int(given[0])


def messages_formed(messages: list[Any]) -> list[Any]:
    """Return copies of the messages, each with a role, contents in lists, and without the assistant's audio."""
    return [_formed(message) if isinstance(message, dict) else message for message in messages]


def has_single_part(message: Any) -> bool:
    """Return True if the message has one part in place of a list of parts."""
    return isinstance(message, dict) and _role_of(message) == "user" and isinstance(message.get("content"), dict)


def _formed(message: dict[str, Any]) -> dict[str, Any]:
    formed = dict(message)
    role = _role_of(message)
    if role is not None:
        formed["role"] = role
    if role == "user" and isinstance(message.get("content"), dict):
        formed["content"] = [message["content"]]
    if role == "assistant" and isinstance(message.get("audio"), dict):
        del formed["audio"]
    return formed


def _role_of(message: dict[str, Any]) -> Any:
    """Return the role, implied if it is absent. None for a message with an `author`, which is another form."""
    role = message.get("role")
    if role is not None or "author" in message:
        return role
    if message.get("tool_call_id") is not None:
        return "tool"
    if message.get("tool_calls") is not None or message.get("function_call") is not None:
        return "assistant"
    return "user"


def last_messages(messages: Sequence[Any], k: int) -> list[int]:
    """Return the places of the messages that stay: the leading ones of the system, and the last `k` of the rest.

    Results whose call is cut off go too. If nothing else would remain, the cut moves back to the message with the
    calls.
    """
    num_leading = 0
    while num_leading < len(messages) and _role(messages[num_leading]) in KEPT_ROLES:
        num_leading += 1
    cut = max(num_leading, len(messages) - k)
    if cut > num_leading:
        start = cut
        while start < len(messages) and _role(messages[start]) in RESULT_ROLES:
            start += 1
        cut = start if start < len(messages) else _calls_before(messages, cut, num_leading)
    return [*range(num_leading), *range(cut, len(messages))]


def _calls_before(messages: Sequence[Any], cut: int, first: int) -> int:
    """Return the place of the message whose calls are answered from `cut` on: by id, else the nearest; else `cut`."""
    assistants = [place for place in range(cut - 1, first - 1, -1) if _role(messages[place]) == "assistant"]
    answered = {
        message.get("tool_call_id") for message in messages[cut:] if isinstance(message.get("tool_call_id"), str)
    }
    by_id = (place for place in assistants if answered & _call_ids(messages[place]))
    return next(by_id, assistants[0] if assistants else cut)


def _call_ids(message: dict[str, Any]) -> set[str]:
    calls = message.get("tool_calls")
    ids = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return {call_id for call_id in ids if isinstance(call_id, str)}


def _role(message: Any) -> Any:
    """Return the role, which messages in the form of harmony have in their author."""
    author = message.get("author") if isinstance(message, dict) and message.get("role") is None else message
    return author.get("role") if isinstance(author, dict) else None
