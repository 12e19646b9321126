"""`continue_final_message`: the last message is left open. A mark goes behind its text, and the rendered prompt is cut there."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import Message
from engine.api.tools import Json
from engine.inputs.marks import Marks


def left_open(message: Message, marks: Marks) -> Message:
    """The last message with a mark, and a blank that tells whether the template trims, behind its text. Raises RequestError."""
    if message.get("tool_calls"):
        raise _cannot_continue("it ends with tool calls")
    ending = marks.end + " "
    content = message.get("content")
    if not isinstance(content, list):
        return message | {"content": f"{content or ''}{ending}"}
    parts: list[Json] = list(content)
    last = next(
        (part for part in reversed(parts) if isinstance(part, dict) and isinstance(part.get("text"), str)), None
    )
    if last is None:
        return message | {"content": [*parts, {"type": "text", "text": ending}]}
    return message | {
        "content": [part | {"text": f"{part['text']}{ending}"} if part is last else part for part in parts]
    }


def ended(text: str, message: Message, marks: Marks) -> str:
    """Rendered text up to the end of its last message, as transformers cuts it. Raises RequestError.

    Where the message is nothing but open reasoning, it ends with that. White space that the template would have trimmed is cut too.
    """
    place = text.rfind(marks.end)
    if place < 0:
        raise _cannot_continue("the chat template changes it so that its end cannot be found")
    content = message["content"]
    written = "".join(_texts(content)).removesuffix(" ").removesuffix(marks.end)
    open_place = text.rfind(marks.open)
    if not written and open_place >= 0:
        return text[:open_place]
    after = place + len(marks.end)
    if text[after : after + 1] == " ":
        return text[:place]
    num_blanks = len(written) - len(written.rstrip())
    return text[: place - num_blanks] if not text[place - num_blanks : place].strip() else text[:place]


def _texts(content: Json) -> list[str]:
    """The text of a message, one for each of its parts."""
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]  # type: ignore[misc]
    return [content] if isinstance(content, str) else []


def _cannot_continue(reason: str) -> RequestError:
    message = f"continue_final_message cannot continue the last message: {reason}"
    return RequestError(ErrorCode.INVALID_VALUE, message, "messages")
