"""Turn the messages of a request into messages as chat templates know them; refuse what no template could show.

Out comes a list of objects with `role`, `content` (a string, or a list of `{"type": "text", "text"}` parts), tool calls with parsed
arguments, and whatever further keys the caller sent. Walking stops at the tenth problem. Called once the model is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from chat.dialects.request.fields import echo
from chat.dialects.request.strict_json import json_read
from chat.errors import MAX_PROBLEMS, ApiError, Problem, problems_error
from engine.api import Message

TEXT_PARTS = ("text", "input_text", "output_text")
MEDIA_PARTS = ("image_url", "input_audio", "audio_url", "video_url", "image_embeds", "audio_embeds")
EMPTY = object()


class MessageWalk:
    """One pass over the messages of one request: collects problems, counts parts, remembers calls by function name."""

    def __init__(self, *, model: str, max_parts: int) -> None:
        self.model = model
        self.max_parts = max_parts
        self.num_parts = 0
        self.problems: list[Problem] = []
        self.call_ids: dict[str, str] = {}

    def walk(self, messages: list[Any]) -> tuple[Message, ...]:
        """All messages in order; raises ApiError with up to ten problems."""
        walked = []
        for index, message in enumerate(messages):
            walked.append(self._message(message, f"messages.{index}", index))
            if len(self.problems) >= MAX_PROBLEMS:
                break
        if self.problems:
            raise problems_error(self.problems)
        return tuple(walked)

    def _refuse(self, path: str, message: str, code: str = "invalid_value") -> None:
        self.problems.append(Problem(code, f"{path} {message}", path))

    def _message(self, message: Any, path: str, index: int) -> Message:
        if not isinstance(message, dict):
            self._refuse(path, f"must be a message object, got {echo(message)}", "invalid_type")
            return {}
        role = message.get("role")
        if not isinstance(role, str):
            if isinstance(message.get("author"), dict):
                self._refuse(f"{path}.author", "is not supported yet: send role and content", "unsupported_parameter")
            elif role is None:
                self._refuse(f"{path}.role", "is required and must be a string", "missing_required_parameter")
            else:
                self._refuse(f"{path}.role", f"must be a string, got {echo(role)}", "invalid_type")
            return {}
        walked = dict(message)
        if role == "assistant":
            self._assistant(walked, path)
        elif role == "function":
            walked["role"] = "tool"
            name = message.get("name")
            if isinstance(name, str) and name in self.call_ids:
                walked["tool_call_id"] = self.call_ids[name]
        walked["content"] = self._content(walked.get("content", EMPTY), path, role)
        if role == "assistant":
            self._fill_from_refusal(walked, path)
            self._calls(walked, path, index)
        return walked

    def _content(self, content: Any, path: str, role: str) -> Any:
        if isinstance(content, str):
            return content
        if content is EMPTY or (content is None and role == "assistant"):
            return ""
        if not isinstance(content, list):
            self._refuse(f"{path}.content", f"must be a string or an array of parts, got {echo(content)}", "invalid_type")
            return ""
        self.num_parts += len(content)
        if self.num_parts > self.max_parts:
            self._refuse(f"{path}.content", f"brings the parts of all messages above the limit of {self.max_parts}")
            return ""
        parts = []
        for index, part in enumerate(content):
            text = self._part(part, f"{path}.content.{index}")
            if text is not None:
                parts.append({"type": "text", "text": text})
            if len(self.problems) >= MAX_PROBLEMS:
                break
        return parts

    def _part(self, part: Any, path: str) -> str | None:
        """The text of one part; None for a part to skip, or after a problem."""
        if isinstance(part, str):
            return part
        if not isinstance(part, dict):
            self._refuse(path, f"must be a content part, got {echo(part)}", "invalid_type")
            return None
        kind = part.get("type")
        if kind is None:
            kind = next((word for word in MEDIA_PARTS if word in part), None)
        if kind in TEXT_PARTS:
            return self._text(part.get("text"), f"{path}.text")
        if kind in ("refusal", "thinking"):
            return self._text(part.get(kind), f"{path}.{kind}")
        if kind in MEDIA_PARTS:
            self._refuse(f"{path}.{kind}", f"cannot be used: {self.model} is not a multimodal model", "unsupported_parameter")
        elif kind == "file":
            self._refuse(f"{path}.file", "is not supported yet", "unsupported_parameter")
        else:
            self._refuse(f"{path}.type", f"must be a known kind of part, got {echo(kind)}")
        return None

    def _text(self, text: Any, path: str) -> str | None:
        if text is None or isinstance(text, str):
            return text
        self._refuse(path, f"must be a string, got {echo(text)}", "invalid_type")
        return None

    def _assistant(self, message: Message, path: str) -> None:
        """Take reasoning out of `thinking` parts and give it both of its names; turn `function_call` into a tool call."""
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        content = message.get("content")
        if isinstance(content, list):
            thoughts: list[Any] = [part for part in content if isinstance(part, dict) and part.get("type") == "thinking"]
            if thoughts and not isinstance(reasoning, str):
                reasoning = "".join(part["thinking"] for part in thoughts if isinstance(part.get("thinking"), str))
            message["content"] = [part for part in content if not any(part is thought for thought in thoughts)] if thoughts else content
        if reasoning is not None and not isinstance(reasoning, str):
            self._refuse(f"{path}.reasoning", f"must be a string, got {echo(reasoning)}", "invalid_type")
        elif reasoning is not None:
            message["reasoning"] = message["reasoning_content"] = reasoning
        call = message.pop("function_call", None)
        if call is not None and not message.get("tool_calls"):
            message["tool_calls"] = [{"type": "function", "function": call}]

    def _fill_from_refusal(self, message: Message, path: str) -> None:
        refusal = message.pop("refusal", None)
        audio = message.pop("audio", None)
        if message["content"]:
            return
        if isinstance(refusal, str) and refusal:
            message["content"] = refusal
        elif audio is not None and not message.get("tool_calls"):
            self._refuse(f"{path}.audio", "cannot be the only content: the server does not keep audio", "unsupported_parameter")

    def _calls(self, message: Message, path: str, index: int) -> None:
        calls: Any = message.pop("tool_calls", None)
        if not calls:
            return
        if not isinstance(calls, list):
            self._refuse(f"{path}.tool_calls", f"must be an array, got {echo(calls)}", "invalid_type")
            return
        walked: list[Any] = []
        for number, call in enumerate(calls):
            function = self._function(call, f"{path}.tool_calls.{number}")
            if function is None:
                if len(self.problems) >= MAX_PROBLEMS:
                    break
                continue
            given_id = call.get("id")
            call_id = given_id if isinstance(given_id, str) else f"call_{index}_{number}"
            self.call_ids[function["name"]] = call_id
            others = {name: value for name, value in call.items() if name != "custom"}
            walked.append({**others, "id": call_id, "type": "function", "function": function})
        message["tool_calls"] = walked

    def _function(self, call: Any, path: str) -> dict[str, Any] | None:
        """`{name, arguments}` with arguments as an object where they are JSON; None after a problem."""
        if not isinstance(call, dict):
            self._refuse(path, f"must be a tool call, got {echo(call)}", "invalid_type")
            return None
        custom = call.get("custom")
        if isinstance(custom, dict) and isinstance(custom.get("name"), str):
            return {"name": custom["name"], "arguments": {"input": custom.get("input")}}
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            self._refuse(f"{path}.function", "must be an object with a name", "invalid_value")
            return None
        return {**function, "arguments": _arguments(function.get("arguments"))}


def _arguments(arguments: Any) -> Any:
    """Templates want an object: JSON text is parsed as strictly as bodies are, "" and null are {}, any other text stays text."""
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    limits = settings.LIGHTCONE_LIMITS
    try:
        return json_read(arguments.encode(), max_depth=limits.max_json_depth, max_digits=limits.max_json_digits)
    except ApiError:
        return arguments


def messages_walk(messages: list[Any], *, model: str, max_parts: int) -> tuple[Message, ...]:
    """Messages for the template of `model`; raises ApiError that names the first bad message or part."""
    try:
        return MessageWalk(model=model, max_parts=max_parts).walk(messages)
    except RecursionError:
        raise ApiError("invalid_value", "messages are nested too deeply", "messages") from None


def last_message_text(messages: Sequence[Message]) -> str:
    """The text of the last walked message, its parts joined by line breaks: what `echo` puts before an answer."""
    content = messages[-1]["content"]
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
