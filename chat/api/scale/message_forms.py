"""Messages as Scale's clients write them, in the forms of the Lightcone request. What is wrong with a message is told there."""

from __future__ import annotations

from typing import Any


def messages_formed(messages: list[Any]) -> list[Any]:
    """The same messages, each with a role, contents in lists, and without audio of the assistant's; the given ones stay as they are."""
    return [_formed(message) if isinstance(message, dict) else message for message in messages]


def has_single_part(message: Any) -> bool:
    """Whether the message as it was sent has one part in place of a list of parts."""
    return isinstance(message, dict) and _role(message) == "user" and isinstance(message.get("content"), dict)


def _formed(message: dict[str, Any]) -> dict[str, Any]:
    formed = dict(message)
    role = _role(message)
    if role is not None:
        formed["role"] = role
    if role == "user" and isinstance(message.get("content"), dict):
        formed["content"] = [message["content"]]
    if role == "assistant" and isinstance(message.get("audio"), dict):
        del formed["audio"]
    return formed


def _role(message: dict[str, Any]) -> Any:
    """The role, as far as it goes without saying. None for a message that names its `author`, which is another form."""
    role = message.get("role")
    if role is not None or "author" in message:
        return role
    if message.get("tool_call_id") is not None:
        return "tool"
    if message.get("tool_calls") is not None or message.get("function_call") is not None:
        return "assistant"
    return "user"
