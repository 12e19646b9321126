"""Turn the messages of a chat into messages of the one request schema, one for one.

Ollama's calls need no ids, and its results name the function at most. Calls without one get an id here, and a result
without one gets that of the earliest call which it can answer. Images become parts behind the text.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from chat.api.request.fields import echo
from chat.api.request.message_parts import is_text
from chat.errors import Problems

HEAD = "data:image/png;base64,"


class OpenCalls:
    """The ids of calls without a result. The work for a conversation is linear."""

    def __init__(self) -> None:
        self._in_order: deque[str] = deque()
        self._by_name: dict[str, deque[str]] = {}
        self._answered: set[str] = set()

    def add(self, name: str, call_id: str) -> None:
        self._answered.discard(call_id)
        self._in_order.append(call_id)
        self._by_name.setdefault(name, deque()).append(call_id)

    def answer(self, call_id: str) -> None:
        self._answered.add(call_id)

    def take(self, name: str | None) -> str | None:
        """Return the id of the earliest call, of this function if it is named, and count it as answered."""
        calls = self._in_order if name is None else self._by_name.get(name, deque())
        while calls:
            call_id = calls.popleft()
            if call_id not in self._answered:
                self._answered.add(call_id)
                return call_id
        return None


def are_texts(images: Any, path: str, problems: Problems) -> bool:
    """Return True for a list of texts. Refuse anything else."""
    if not isinstance(images, list):
        problems.refuse(path, f"must be an array of images in base64, got {echo(images)}", "invalid_type")
        return False
    return all(is_text(image, f"{path}.{number}", problems) for number, image in enumerate(images))


def image_parts(text: str, images: list[str]) -> list[dict[str, Any]]:
    """Return the content of a message with images behind its text. The format of each is told by its first bytes."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return parts + [{"type": "image_url", "image_url": {"url": f"{HEAD}{image}"}} for image in images]


def image_paths(num_parts: int, num_images: int, message: str, images: str) -> dict[str, str]:
    """Return the paths of the images in a content of so many parts, with those that were sent."""
    first = num_parts - num_images
    paths = {f"{message}.content.{first + number}.image_url": f"{images}.{number}" for number in range(num_images)}
    return paths | {f"{path}.url": sent for path, sent in paths.items()}


class ConversationReader:
    """One pass over the messages of one request. Values of a wrong type stay, for the one schema to refuse."""

    def __init__(self) -> None:
        self._problems = Problems()
        self._num_ids = 0
        self._calls = OpenCalls()
        self.sent: dict[str, str] = {}
        """From the paths of images to those that were sent."""

    def read(self, messages: list[Any]) -> list[Any]:
        """Return the messages in order. Raises ApiError for images and names of functions that are no text."""
        read = [
            self._message(message, f"messages.{index}") if isinstance(message, dict) else message
            for index, message in enumerate(messages)
        ]
        self._problems.raise_any()
        return read

    def _message(self, message: dict[str, Any], path: str) -> dict[str, Any]:
        translated = {name: value for name, value in message.items() if name not in ("images", "thinking", "tool_name")}
        if translated.get("content") is None:
            translated.pop("content", None)
        if message.get("images") and are_texts(message["images"], f"{path}.images", self._problems):
            content = translated.get("content", "")
            if isinstance(content, str):
                translated["content"] = parts = image_parts(content, message["images"])
                self.sent |= image_paths(len(parts), len(message["images"]), path, f"{path}.images")
        if message.get("thinking"):
            translated["reasoning"] = message["thinking"]
        if message.get("role") == "tool" and is_text(message.get("tool_name"), f"{path}.tool_name", self._problems):
            self._result(translated, message.get("tool_name"))
        elif isinstance(message.get("tool_calls"), list):
            translated["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        return translated

    def _call(self, call: Any) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return call
        call_id = call.get("id")
        if not call_id:
            self._num_ids += 1
            call_id = f"call{self._num_ids:05d}"  # NOTE: nine letters and digits, as some templates insist
        if isinstance(call_id, str):
            self._calls.add(function["name"], call_id)
        shown = {name: value for name, value in function.items() if name != "index"}
        return {"id": call_id, "type": "function", "function": shown}

    def _result(self, result: dict[str, Any], name: str | None) -> None:
        """Name the function of a result, and the call that it answers."""
        if name:
            result["name"] = name
        call_id = result.get("tool_call_id")
        if isinstance(call_id, str) and call_id:
            self._calls.answer(call_id)
        elif not call_id:
            made_id = self._calls.take(name or None)
            if made_id is not None:
                result["tool_call_id"] = made_id
