"""Turn the messages of a request into messages as chat templates know them; refuse what no template could show.

A message has `role`, `content`, tool calls with parsed arguments, and any further keys that the caller sent. `content`
is a string or a list of parts: `{"type": "text", "text"}`, `{"type": "file", "file", "param"}`,
`{"type": "image", "data", "detail", "param"}`, and an empty thinking part with `closed: false` for reasoning that is
left open. The tenth problem ends the walk. It needs the model's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chat.api.request.fields import echo
from chat.api.request.image_parts import MediaRules
from chat.api.request.message_parts import ABSENT, CallReader, Content, PartReader, is_text
from chat.api.request.named_files import AttachedFiles
from chat.errors import ApiError, Problems
from engine.api import Json, Message

NEVER_CALL = ("system", "developer", "user", "tool", "function")
"""Roles whose `tool_calls` are a key like any other. The rest is the assistant and the model's own roles."""

HARMONY_ROLES = ("user", "assistant", "system", "developer", "tool")
HARMONY_CHANNELS = ("analysis", "commentary", "final")
HARMONY_KEYS = ("author", "role", "content", "channel", "recipient", "content_type")
NO_RECIPIENT = (None, "", "all", "assistant")
FUNCTIONS = "functions."


class MessageWalk:
    def __init__(self, model: str, max_parts: int, files: AttachedFiles, media: MediaRules) -> None:
        self._problems = Problems()
        self._parts = PartReader(self._problems, model=model, max_parts=max_parts, files=files, media=media)
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
            elif is_text(message.get("role"), f"{path}.role", self._problems):
                self._problems.refuse(f"{path}.role", "is required and must be a string", "missing_required_parameter")
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
            is_text(message.get(name), f"{path}.{name}", self._problems)
        audio = message.get("audio")
        if message["role"] == "assistant" and not isinstance(audio, dict | None):
            self._problems.refuse(f"{path}.audio", f"must be an object with an id, got {echo(audio)}", "invalid_type")

    def _reasoning(self, message: Message, content: Content, path: str) -> None:
        """Put reasoning, thinking parts included, under both of its names. Mark in the content that it is left open."""
        name = "reasoning_content" if message.get("reasoning") is None else "reasoning"
        reasoning = content.thoughts if message.get(name) is None else message[name]
        if reasoning is None:
            return
        if not isinstance(reasoning, str):
            if message["role"] not in NEVER_CALL:
                is_text(reasoning, f"{path}.{name}", self._problems)
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


class HarmonyReader:
    """Reads messages in the form of harmony (`author`, `channel`, `recipient`; https://github.com/openai/harmony).

    An assistant's turn is several of them: analysis, a preamble, calls, the final text. They become the reasoning, the
    content and the calls of one ordinary message or more, for any model.
    """

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
        others: Message = {key: value for key, value in message.items() if key not in HARMONY_KEYS}
        content = message.get("content")
        if not isinstance(content, list | None):
            text = f"must be an array of text parts, got {echo(content)}"
            self._problems.refuse(f"{path}.content", text, "invalid_type")
            return
        read = self._parts.read(content or [], f"{path}.content", "user").value
        if any(isinstance(part, dict) and part.get("type") != "text" for part in read):
            text = "must be an array of text parts: files belong in messages with a role"
            self._problems.refuse(f"{path}.content", text)
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
        if role not in HARMONY_ROLES:
            self._problems.refuse(f"{path}.author.role", f"must be one of {', '.join(HARMONY_ROLES)}; got {echo(role)}")
            return None
        name, channel, recipient = author.get("name"), message.get("channel"), message.get("recipient")
        if not is_text(name, f"{path}.author.name", self._problems):
            return None
        if channel not in (None, "", *HARMONY_CHANNELS):
            self._problems.refuse(
                f"{path}.channel", f"must be one of {', '.join(HARMONY_CHANNELS)}; got {echo(channel)}"
            )
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


def messages_walk(
    messages: Sequence[Any],
    *,
    model: str,
    max_parts: int,
    files: AttachedFiles | None = None,
    media: MediaRules | None = None,
) -> tuple[Message, ...]:
    """Return the messages for the template of `model`. Raises ApiError that names the first bad message or part.

    `files`: those that the messages name by id. `media`: what becomes of these; refused unless it is given.
    """
    try:
        return MessageWalk(model, max_parts, files or {}, media or MediaRules()).walk(messages)
    except RecursionError:
        raise ApiError("invalid_value", "messages are nested too deeply", "messages") from None


def last_message_text(messages: Sequence[Message], sent: Sequence[Any]) -> tuple[str, str]:
    """Return role and text (text parts on lines of their own) of the last message, a `function` as `sent`."""
    message = messages[-1]
    is_function = isinstance(sent[-1], dict) and sent[-1].get("role") == "function"
    role, content = "function" if is_function else message.get("role"), message.get("content")
    if isinstance(content, list):
        content = "\n".join(
            str(part["text"]) for part in content if isinstance(part, dict) and part.get("type") == "text"
        )
    return str(role), content if isinstance(content, str) else ""
