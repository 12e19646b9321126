"""Turn the messages of a request into messages as chat templates know them, and refuse what no template could show.

A message has `role`, `content`, tool calls with parsed arguments, and any further keys that the caller sent. `content`
is a string or a list of parts: `{"type": "text", "text"}`, `{"type": "file", "file", "param"}`, and an empty thinking
part with `closed: false` for reasoning that is left open. The tenth problem ends the walk. It needs the model's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chat.api.request.calls import CallReader
from chat.api.request.fields import echo
from chat.api.request.harmony import HarmonyReader
from chat.api.request.parts import ABSENT, Content, PartReader
from chat.errors import ApiError, Problems
from engine.api import Json, Message

NEVER_CALL = ("system", "developer", "user", "tool", "function")
"""Roles whose `tool_calls` are a key like any other. The rest is the assistant and the model's own roles."""


class MessageWalk:
    """One pass over the messages of one request."""

    def __init__(self, *, model: str, max_parts: int) -> None:
        self._problems = Problems()
        self._parts = PartReader(self._problems, model=model, max_parts=max_parts)
        self._calls = CallReader(self._problems)
        self._harmony = HarmonyReader(self._problems, self._parts, self._calls)

    def walk(self, messages: Sequence[Any]) -> tuple[Message, ...]:
        """Return all messages in order. Raises ApiError with up to ten problems."""
        walked: list[Message] = []
        for index, message in enumerate(messages):
            path = f"messages.{index}"
            if not isinstance(message, dict):
                self._problems.refuse(path, f"must be a message object, got {echo(message)}", "invalid_type")
            elif isinstance(message.get("role"), str):
                walked.append(self._harmony.joined(self._message(message, path)))
            elif "author" in message:
                self._harmony.read(message, path, walked)
            elif message.get("role") is None:
                self._problems.refuse(f"{path}.role", "is required and must be a string", "missing_required_parameter")
            else:
                self._problems.refuse(f"{path}.role", f"must be a string, got {echo(message['role'])}", "invalid_type")
            if self._problems.is_full:
                break
        self._problems.raise_any()
        return (*walked, *self._harmony.left())

    def _message(self, message: dict[str, Any], path: str) -> Message:
        role = message["role"]
        walked = dict(message)
        self._check_labels(message, path)
        content = self._parts.read(walked.get("content", ABSENT), f"{path}.content", role)
        walked["content"] = content.value
        self._reasoning(walked, content, path)
        if role == "developer" or role not in (*NEVER_CALL, "assistant"):
            self._check_tools(walked, path)
        if role not in NEVER_CALL:
            self._read_calls(walked, path)
        if role == "assistant":
            self._fill_from_refusal(walked, path)
        elif role == "function":
            walked["role"] = "tool"
            call_id = self._calls.latest(message.get("name"))
            if call_id is not None:
                walked["tool_call_id"] = call_id
        if walked["role"] == "tool":
            self._calls.note_answer(walked.get("tool_call_id"))
        return walked

    def _check_labels(self, message: dict[str, Any], path: str) -> None:
        """Check the keys to which the role gives a type. Null counts as absent."""
        names = {"assistant": ("name", "refusal"), "tool": ("name", "tool_call_id")}.get(message["role"], ("name",))
        for name in names:
            if not isinstance(message.get(name), str | None):
                self._problems.refuse(f"{path}.{name}", f"must be a string, got {echo(message[name])}", "invalid_type")
        audio = message.get("audio")
        if message["role"] == "assistant" and not isinstance(audio, dict | None):
            self._problems.refuse(f"{path}.audio", f"must be an object with an id, got {echo(audio)}", "invalid_type")

    def _reasoning(self, message: Message, content: Content, path: str) -> None:
        """Put reasoning, thinking parts included, under both of its names.

        Mark reasoning that is left open in the content.
        """
        given = next(
            ((name, message[name]) for name in ("reasoning", "reasoning_content") if message.get(name) is not None),
            None,
        )
        if given is None and content.thoughts is None:
            return
        name, reasoning = given or ("reasoning", content.thoughts)
        if not isinstance(reasoning, str):
            if message["role"] not in NEVER_CALL:
                self._problems.refuse(f"{path}.{name}", f"must be a string, got {echo(reasoning)}", "invalid_type")
            return
        if content.thoughts is not None and content.thoughts not in reasoning:
            reasoning = f"{reasoning}\n{content.thoughts}"
        message["reasoning"] = message["reasoning_content"] = reasoning
        if content.is_open and isinstance(message["content"], list):
            message["content"].append({"type": "thinking", "thinking": "", "closed": False})

    def _check_tools(self, message: Message, path: str) -> None:
        """Check the type of a message's tools, which reach the template unchanged."""
        tools = message.get("tools")
        if tools is None:
            message.pop("tools", None)
        elif not isinstance(tools, list):
            self._problems.refuse(f"{path}.tools", f"must be an array of tools, got {echo(tools)}", "invalid_type")
        else:
            for index, tool in enumerate(tools):
                function = tool.get("function") if isinstance(tool, dict) else None
                if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                    self._problems.refuse(f"{path}.tools.{index}", "must be an object with a function that has a name")
                if self._problems.is_full:
                    return

    def _read_calls(self, message: Message, path: str) -> None:
        """Bring calls of all forms into one. Remove an empty list of them."""
        calls = message.pop("tool_calls", None)
        old_call = message.pop("function_call", None) if message["role"] == "assistant" else None
        read: list[Json] = []
        if calls and old_call is not None:
            self._problems.refuse(f"{path}.function_call", "cannot be combined with tool_calls; send tool_calls alone")
        elif old_call is not None:
            read = self._calls.read_old(old_call, f"{path}.function_call")
        elif isinstance(calls, list):
            read = self._calls.read(calls, f"{path}.tool_calls")
        elif calls is not None:
            self._problems.refuse(f"{path}.tool_calls", f"must be an array, got {echo(calls)}", "invalid_type")
        if read:
            message["tool_calls"] = read

    def _fill_from_refusal(self, message: Message, path: str) -> None:
        refusal = message.pop("refusal", None)
        audio = message.pop("audio", None)
        if message["content"]:
            return
        if isinstance(refusal, str) and refusal:
            message["content"] = refusal
        elif audio is not None and not message.get("tool_calls") and not message.get("reasoning"):
            message_text = "cannot be the only content: the server does not keep audio; send its transcript as content"
            self._problems.refuse(f"{path}.audio", message_text, "unsupported_parameter")


def messages_walk(messages: Sequence[Any], *, model: str, max_parts: int) -> tuple[Message, ...]:
    """Return the messages for the template of `model`. Raises ApiError that names the first bad message or part."""
    try:
        return MessageWalk(model=model, max_parts=max_parts).walk(messages)
    except RecursionError:
        raise ApiError("invalid_value", "messages are nested too deeply", "messages") from None


def last_message_text(messages: Sequence[Message], sent: Sequence[Any]) -> tuple[str, str]:
    """Return role and text of the last message. The text parts of a list are joined with line breaks.

    `messages` are those of `messages_walk`, `sent` those of the client: a `function` is shown as a tool but keeps its
    role.
    """
    message = messages[-1]
    is_function = isinstance(sent[-1], dict) and sent[-1].get("role") == "function"
    role, content = "function" if is_function else message.get("role"), message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            str(part["text"]) for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return str(role), content if isinstance(content, str) else ""
