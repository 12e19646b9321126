"""Turn messages in the form of harmony (`author`, `channel`, `recipient`; https://github.com/openai/harmony) into
ordinary ones.

An assistant's turn is several such messages: analysis, a preamble, calls, the final text. They become the reasoning,
the content and the calls of one message or more, for any model. messages.py calls this message by message.
"""

from __future__ import annotations

from typing import Any

from chat.api.request.calls import CallReader
from chat.api.request.fields import echo
from chat.api.request.parts import PartReader
from chat.errors import Problems
from engine.api import Json, Message

ROLES = ("user", "assistant", "system", "developer", "tool")
CHANNELS = ("analysis", "commentary", "final")
OWN_KEYS = ("author", "role", "content", "channel", "recipient", "content_type")
NO_RECIPIENT = (None, "", "all", "assistant")
FUNCTIONS = "functions."


class HarmonyReader:
    """Reads the harmony messages of one request in order. Holds analysis until the assistant's next message."""

    def __init__(self, problems: Problems, parts: PartReader, calls: CallReader) -> None:
        self._problems = problems
        self._parts = parts
        self._calls = calls
        self._analysis: list[str] = []
        self._caller: Message | None = None
        """The message to which the directly following one may add its call."""

    def read(self, message: dict[str, Any], path: str, walked: list[Message]) -> None:
        """Add the message, if anything becomes of it, to `walked`."""
        head = self._head(message, path)
        if head is None:
            return
        role, name, channel, function = head
        others: Message = {key: value for key, value in message.items() if key not in OWN_KEYS}
        content = message.get("content")
        if content is not None and not isinstance(content, list):
            self._problems.refuse(
                f"{path}.content", f"must be an array of text parts, got {echo(content)}", "invalid_type"
            )
            return
        read = self._parts.read(content or [], f"{path}.content", "user").value
        if any(isinstance(part, dict) and part.get("type") != "text" for part in read):
            self._problems.refuse(
                f"{path}.content", "must be an array of text parts: files belong in messages with a role"
            )
            return
        texts = [str(part["text"]) for part in read if isinstance(part, dict)]
        if role == "assistant" and function:
            self._call(function, "".join(texts), walked)
        elif role == "assistant" and channel == "analysis":
            self._analysis.append("\n".join(texts))
            self._caller = None
        elif role == "tool":
            self._caller = None
            called = {"tool_call_id": call_id} if (call_id := self._calls.answer(name)) is not None else {}
            walked.append({**others, "role": role, "name": name, **called, "content": "\n".join(texts)})
        else:
            named = {"name": name} if name else {}
            walked.append(self.joined({**others, "role": role, **named, "content": "\n".join(texts)}))
            self._caller = walked[-1] if role == "assistant" else None

    def joined(self, message: Message) -> Message:
        """Return the message. An assistant's message gets the analysis before it."""
        self._caller = None
        if message.get("role") != "assistant" or not self._analysis:
            return message
        own = message.get("reasoning")
        reasoning = "\n".join([*self._analysis, *([own] if isinstance(own, str) and own else [])])
        self._analysis = []
        return message | {"reasoning": reasoning, "reasoning_content": reasoning}

    def left(self) -> list[Message]:
        """Return the message for analysis that no message of the assistant follows."""
        return [self.joined({"role": "assistant", "content": ""})] if self._analysis else []

    def _call(self, function: str, arguments: str, walked: list[Message]) -> None:
        """Add a call to the assistant's message right before, or as a message of its own."""
        call: Json = self._calls.call({"name": function, "arguments": self._calls.arguments(arguments)}, None)
        caller = self._caller
        if caller is None or self._analysis:
            walked.append(self.joined({"role": "assistant", "content": ""}))
            caller = walked[-1]
        calls = caller.setdefault("tool_calls", [])
        assert isinstance(calls, list)
        calls.append(call)
        self._caller = caller

    def _head(self, message: dict[str, Any], path: str) -> tuple[str, str, str | None, str] | None:
        """Return role, name, channel and called function; None after a problem."""
        author = message["author"]
        role = author.get("role") if isinstance(author, dict) else None
        if role not in ROLES:
            self._problems.refuse(f"{path}.author.role", f"must be one of {', '.join(ROLES)}; got {echo(role)}")
            return None
        name, channel, recipient = author.get("name"), message.get("channel"), message.get("recipient")
        if name is not None and not isinstance(name, str):
            self._problems.refuse(f"{path}.author.name", f"must be a string, got {echo(name)}", "invalid_type")
            return None
        if channel not in (None, "", *CHANNELS):
            self._problems.refuse(f"{path}.channel", f"must be one of {', '.join(CHANNELS)}; got {echo(channel)}")
            return None
        if role == "tool":
            if name is None or not name.startswith(FUNCTIONS) or name == FUNCTIONS:
                self._problems.refuse(f"{path}.author.name", f"must be functions.NAME, got {echo(name)}")
                return None
            return role, name.removeprefix(FUNCTIONS), channel, ""
        if recipient in NO_RECIPIENT:
            return role, name or "", channel, ""
        is_function = isinstance(recipient, str) and recipient.startswith(FUNCTIONS) and recipient != FUNCTIONS
        if role != "assistant" or not is_function or channel == "final":
            message_text = f"must be functions.NAME, in the commentary of the assistant, got {echo(recipient)}"
            self._problems.refuse(f"{path}.recipient", message_text)
            return None
        return role, name or "", channel, recipient.removeprefix(FUNCTIONS)
