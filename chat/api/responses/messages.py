"""Turn items into the messages of a chat, and note what the request calls each part of them.

Calls stand with the message that made them, and reasoning with what it led to, as templates want it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chat.api.responses.tools import NAMESPACE, joined_name

Item = dict[str, Any]
Message = dict[str, Any]
PATH = re.compile(r"messages\.(\d+)(?:\.(content|tool_calls)(?:\.(\d+))?)?(.*)", re.DOTALL)
MEDIA = ("file", "image_url")


@dataclass(slots=True)
class Origin:
    """The origin of a message in the request: the paths of its content and of its calls."""

    content: str
    calls: list[str] = field(default_factory=list)


def messages_of(instructions: str | None, items: Iterable[tuple[str, Item]]) -> tuple[list[Message], list[Origin]]:
    """Return the messages of `items`, which come with their paths. `instructions` go first."""
    walk = _Walk()
    if instructions is not None:
        walk.add({"role": "system", "content": instructions}, "instructions")
    for path, item in items:
        walk.take(path, item)
    walk.flush()
    return walk.messages, walk.origins


class _Walk:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.origins: list[Origin] = []
        self._thoughts: list[str] = []
        self._thought_path = ""

    def take(self, path: str, item: Item) -> None:
        kind = item["type"]
        if kind == "reasoning":
            self._thoughts += [part["text"] for part in item["content"] or item["summary"]]
            self._thought_path = path
        elif kind == "function_call":
            self._call(path, item)
        elif kind == "function_call_output":
            output = item["output"]
            self.flush()
            self.add({"role": "tool", "tool_call_id": item["call_id"], "content": _content(output)}, f"{path}.output")
        else:
            message = {"role": item["role"], "content": _content(item["content"])}
            if item["role"] != "assistant":
                self.flush()
            self.add(self._thought(message), f"{path}.content")

    def add(self, message: Message, content: str) -> None:
        self.messages.append(message)
        self.origins.append(Origin(content))

    def flush(self) -> None:
        """Add pending thoughts as a message of their own."""
        if self._thoughts:
            self.add(self._thought({"role": "assistant", "content": ""}), self._thought_path)

    def _call(self, path: str, item: Item) -> None:
        function = {"name": joined_name(item.get(NAMESPACE), item["name"]), "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        if self._thoughts or not self.messages or self.messages[-1]["role"] != "assistant":
            self.add(self._thought({"role": "assistant", "content": ""}), path)
        self.messages[-1].setdefault("tool_calls", []).append(call)
        self.origins[-1].calls.append(path)

    def _thought(self, message: Message) -> Message:
        if self._thoughts:
            message["reasoning"] = "\n".join(self._thoughts)
            self._thoughts = []
        return message


def _content(parts: str | list[Item]) -> str | list[Item]:
    """Return the content; a single text becomes a string, as most clients send it to chats."""
    if isinstance(parts, str):
        return parts
    read = [_part(part) for part in parts]
    return read[0]["text"] if len(read) == 1 and read[0]["type"] == "text" else read


def _part(part: Item) -> Item:
    if part["type"] == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    if part["type"] == "input_image":
        image = {"url": part.get("image_url"), "file_id": part.get("file_id"), "detail": part.get("detail")}
        return {"type": "image_url", "image_url": image}
    if part["type"] == "refusal":
        return {"type": "refusal", "refusal": part["refusal"]}
    return {"type": "text", "text": part["text"]}


def sent_path(path: str, origins: Sequence[Origin]) -> str | None:
    """Return the path in the request of the place `path` of its messages; None for paths of other fields."""
    match = PATH.fullmatch(path)
    if match is None or int(match[1]) >= len(origins):
        return None
    origin, place, number, rest = origins[int(match[1])], match[2], match[3], match[4]
    if place == "tool_calls" and number is not None and int(number) < len(origin.calls):
        return origin.calls[int(number)] + rest.removeprefix(".function")
    if place != "content" or number is None:
        return origin.content
    if rest == ".image_url.file_id":
        return f"{origin.content}.{number}.file_id"
    if rest.startswith(".image_url"):
        return f"{origin.content}.{number}.image_url"
    return f"{origin.content}.{number}{rest.removeprefix('.file')}"
