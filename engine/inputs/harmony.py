"""Messages for the templates of gpt-oss, which write harmony channels (https://github.com/openai/harmony).

Such a template shows reasoning under `thinking`, takes one call per message, and labels a result with the name of the
call before it.
"""

from __future__ import annotations

from typing import Any

from engine.api.request import Message

THOUGHTS = ("thinking", "reasoning", "reasoning_content")


def harmony_messages(messages: list[Message]) -> list[Message]:
    """Return the same conversation in the form that harmony templates take.

    1. Drop analysis up to the last final answer, as in the model's training. Keep that of the last message.
    2. Split a message with several calls into one per call, each followed by its result, so that every result carries
       the name of its call.
    """
    finals = [
        index
        for index, message in enumerate(messages)
        if message.get("role") == "assistant" and "tool_calls" not in message
    ]
    last_final = finals[-1] if finals else -1
    mapped: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        if message.get("role") == "assistant":
            is_dropped = position <= last_final and position < len(messages) - 1
            message = _with_thinking(message, is_dropped=is_dropped)
        calls = message.get("tool_calls")
        position += 1
        if not isinstance(calls, list):
            mapped.append(message)
            continue
        end = position
        while end < len(messages) and messages[end].get("role") == "tool":
            end += 1
        mapped += _one_by_one(message, calls, messages[position:end])
        position = end
    return mapped


def _with_thinking(message: Message, *, is_dropped: bool) -> Message:
    thought = next((message[name] for name in THOUGHTS if message.get(name)), None)
    others = {name: value for name, value in message.items() if name not in THOUGHTS}
    if is_dropped or not isinstance(thought, str):
        return others
    if "tool_calls" in message and message.get("content"):  # the template shows one text before a call, as analysis
        return others | {"thinking": f"{thought}\n\n{_text(message['content'])}", "content": ""}
    return others | {"thinking": thought, "reasoning": thought, "reasoning_content": thought}


def _one_by_one(message: Message, calls: list[Any], results: list[Message]) -> list[Message]:
    """Return a message for each call, followed by its result: the one with its id, else the next in order."""
    left = list(results)
    mapped: list[Message] = []
    for number, call in enumerate(calls):
        alone: Message = {"role": message["role"], "content": ""} if number else dict(message)
        mapped.append(alone | {"tool_calls": [call]})
        call_id = call.get("id") if isinstance(call, dict) else None
        result = next((one for one in left if call_id is not None and one.get("tool_call_id") == call_id), None)
        if result is None and left and left[0].get("tool_call_id") is None:
            result = left[0]
        if result is not None:
            left = [one for one in left if one is not result]
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            mapped.append(result | {"name": name} if name is not None else result)
    return mapped + left


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""
