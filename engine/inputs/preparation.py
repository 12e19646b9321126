"""Messages in the form that one template expects: its form of content, parsed arguments, and tools it would not show.

Works on messages whose control texts are already escaped. Never changes its input. Renders nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from engine.api.request import Json, Message
from engine.inputs.harmony import harmony_messages
from engine.inputs.template import ChatTemplate

CALL_START, CALL_END = "<tool_call>", "</tool_call>"


def prepare_messages(messages: list[Message], template: ChatTemplate) -> list[Message]:
    """Return the messages in the form that `template` takes.

    1. Replace role `developer` by `system` if the template lacks it. Give reasoning both of its names.
    2. Parse the arguments of calls. Write calls that the template would not show into the text, in hermes form.
    3. For harmony templates, split calls and drop old analysis (harmony.py).
    4. Turn content into one string or a list of parts.
    """
    prepared = [_prepared(message, template) for message in messages]
    if template.is_harmony:
        prepared = harmony_messages(prepared)
    return [message | {"content": _shaped(message, template)} for message in prepared]


def describe_tools(messages: list[Message], tools: list[dict[str, Json]], *, in_system: bool) -> list[Message]:
    """Return the messages with the tools described in hermes form, in the system message or the first user message."""
    if in_system:
        first = messages[0] if messages else {}
        if first.get("role") not in ("system", "developer"):
            return [{"role": "system", "content": tools_text(tools)}, *messages]
        return [first | {"content": _joined(first.get("content"), tools_text(tools))}, *messages[1:]]
    place = next((index for index, message in enumerate(messages) if message.get("role") == "user"), None)
    if place is None:
        return [{"role": "user", "content": tools_text(tools)}, *messages]
    described = messages[place] | {"content": _joined(tools_text(tools), messages[place].get("content"))}
    return [*messages[:place], described, *messages[place + 1 :]]


def tools_text(tools: list[dict[str, Json]]) -> str:
    """Describe the tools for the model and ask for calls in the form that the hermes parser reads."""
    signatures = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more of these functions to help with the request. "
        f"Their signatures stand within <tools></tools>:\n<tools>\n{signatures}\n</tools>\n\n"
        "For each call, write a JSON object with the name of the function and its arguments within "
        f"{CALL_START}{CALL_END}:\n{CALL_START}\n"
        '{"name": <name of the function>, "arguments": <object of arguments>}'
        f"\n{CALL_END}"
    )


def _prepared(message: Message, template: ChatTemplate) -> Message:
    prepared = dict(message)
    if prepared.get("role") == "developer" and not template.knows_developer:
        prepared["role"] = "system"
    reasoning = prepared.get("reasoning")
    reasoning = prepared.get("reasoning_content") if reasoning is None else reasoning
    if reasoning is not None:
        prepared["reasoning"] = prepared["reasoning_content"] = reasoning
    content = prepared.get("content")
    prepared["content"] = "" if content is None else content
    calls = prepared.get("tool_calls")
    if not calls:
        prepared.pop("tool_calls", None)
    elif isinstance(calls, list):
        prepared["tool_calls"] = [_with_argument_object(call) for call in calls]
        if not template.knows_calls and prepared.get("role") == "assistant":
            prepared["content"] = _joined(prepared["content"], _calls_text(prepared.pop("tool_calls")))
    return prepared


def _shaped(message: Message, template: ChatTemplate) -> Json:
    content = message["content"]
    if not template.takes_parts:
        return _as_text(content) if isinstance(content, list) else content
    given = content if isinstance(content, list) else [content] if content else []
    parts: list[Any] = [{"type": "text", "text": part} if isinstance(part, str) else part for part in given]
    reasoning = message.get("reasoning")
    if (
        template.takes_thinking_parts
        and message.get("role") == "assistant"
        and isinstance(reasoning, str)
        and reasoning
    ):
        parts.insert(0, {"type": "thinking", "thinking": reasoning, "closed": True})
    return parts


def _as_text(parts: list[Json]) -> str:
    """Return parts as one text: a line break between texts, none beside a medium."""
    text, is_behind_text = "", False
    for part in parts:
        is_medium = isinstance(part, dict) and "placeholder" in part
        text += ("\n" if is_behind_text and not is_medium else "") + _part_text(part)
        is_behind_text = not is_medium
    return text


def _part_text(part: Json) -> str:
    text = part.get("text", part.get("placeholder", "")) if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _joined(before: Json, after: Json) -> Json:
    """Concatenate two contents. If one is a list of parts, the other joins its nearest part."""
    if isinstance(before, list):
        return _in_part(before, len(before) - 1, lambda text: f"{text}\n\n{after}")
    if isinstance(after, list):
        return _in_part(after, 0, lambda text: f"{before}\n\n{text}")
    return f"{before}\n\n{after}" if before and after else before or after


def _in_part(parts: list[Json], index: int, change: Callable[[str], str]) -> list[Json]:
    part = parts[index] if parts else None
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return [*parts, {"type": "text", "text": change("").strip()}]
    return [*parts[:index], part | {"text": change(str(part["text"]))}, *parts[index + 1 :]]


def _calls_text(calls: Any) -> str:
    """Write calls as a model in hermes form would."""
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    described = [
        {"name": function.get("name"), "arguments": function.get("arguments")}
        for function in functions
        if isinstance(function, dict)
    ]
    return "\n".join(f"{CALL_START}\n{json.dumps(call, ensure_ascii=False)}\n{CALL_END}" for call in described)


def _with_argument_object(call: Any) -> Any:
    """Return a tool call with its JSON arguments parsed; arguments that are not JSON stay text."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_no_constant)
            json.dumps(arguments, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return call
    return call | {"function": function | {"arguments": arguments}}


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
