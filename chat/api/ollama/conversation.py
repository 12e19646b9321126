"""Turn the messages of a chat into messages of the one request schema, one for one.

Ollama's calls need no ids, and its results name the function at most. Calls without one get an id here, and a result
without one gets that of the earliest call which it can answer. Images are refused.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from chat.api.ollama.fields import IMAGES
from chat.api.request.message_parts import is_text
from chat.errors import Problems


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


class ConversationReader:
    """One pass over the messages of one request. Values of a wrong type stay, for the one schema to refuse."""

    def __init__(self) -> None:
        self._problems = Problems()
        self._num_ids = 0
        self._calls = OpenCalls()

    def read(self, messages: list[Any]) -> list[Any]:
        """Return the messages in order. Raises ApiError for images, and for names of functions that are no text."""
        read = [
            self._message(message, f"messages.{index}") if isinstance(message, dict) else message
            for index, message in enumerate(messages)
        ]
        self._problems.raise_any()
        return read

    def _message(self, message: dict[str, Any], path: str) -> dict[str, Any]:
        translated = {name: value for name, value in message.items() if name not in ("images", "thinking", "tool_name")}
        if message.get("images") and not self._problems.is_full:
            self._problems.refuse(f"{path}.images", IMAGES, "unsupported_parameter")
        if translated.get("content") is None:
            translated.pop("content", None)
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
