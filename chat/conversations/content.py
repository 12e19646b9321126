"""What a turn says, as plain text and as messages of OpenAI's API.

The content of a turn is a text, a list of content parts, or an answer: `{"choices": [{"content", "reasoning",
"calls", "finish_reason", "tokens"}], "shown"}`, as the page keeps it. Anything else in it is kept and has no text.

A file that is attached to a question has its name as `attachment`: a text file is a text part; of others `about` has
what the page shows of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

TITLE_CHARS = 60
ATTACHMENT = "attachment"
MARKS = (ATTACHMENT, "about")
"""What is kept of a file and not sent."""
IMAGE, MEDIA = "image_url", ("image_url", "input_audio", "file")
"""The kinds of parts that are no text."""
BEGINS_AS_FILE = re.compile(r"([^\n]{1,255}):\n\n")
"""How the text of an attached file begins: older parts have no other mark."""


def content_text(content: Any) -> str:
    """Return the text of a turn's content, of the shown choice if it is an answer."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n\n".join(text for text in texts if isinstance(text, str))
    text = shown_choice(content).get("content")
    return text if isinstance(text, str) else ""


def question_content(content: Any) -> Any:
    """Return the content of a question with marks on its files, also of an older one, which was kept without them."""
    if not isinstance(content, list) or any(_is_file(part) for part in content):
        return content
    return [_marked(part) for part in content]


def question_split(content: Any) -> tuple[str, list[str]]:
    """Return the text of a question without its attached files, and the names of these."""
    parts = question_content(content)
    if not isinstance(parts, list):
        return content_text(parts), []
    names = [str(part[ATTACHMENT]) for part in parts if _is_file(part)]
    return content_text([part for part in parts if not _is_file(part)]), names


def media_names(content: Any) -> list[str]:
    """Return the names of the images, sounds and documents of a content, or what each is."""
    parts = content if isinstance(content, list) else []
    return [str(part.get(ATTACHMENT) or part["type"]) for part in parts if _is_media(part)]


def num_media(content: Any) -> tuple[int, int]:
    """Return how many images a content has, and how many other files that are no text."""
    kinds = [part["type"] for part in (content if isinstance(content, list) else []) if _is_media(part)]
    return kinds.count(IMAGE), len(kinds) - kinds.count(IMAGE)


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in MEDIA


def _is_file(part: Any) -> bool:
    return isinstance(part, dict) and ATTACHMENT in part


def _marked(part: Any) -> Any:
    """Return a part without a mark with one, if it begins as a file."""
    text = part.get("text") if isinstance(part, dict) else None
    begun = BEGINS_AS_FILE.match(text) if isinstance(text, str) else None
    return part | {ATTACHMENT: begun[1]} if begun else part


def shown_choice(content: Any) -> Mapping[str, Any]:
    """Return the choice of an answer that is shown, empty if there is none."""
    choices = content.get("choices") if isinstance(content, dict) else None
    shown = content.get("shown", 0) if isinstance(content, dict) else 0
    if not isinstance(choices, list) or not isinstance(shown, int) or not 0 <= shown < len(choices):
        return {}
    choice = choices[shown]
    return choice if isinstance(choice, dict) else {}


def content_followed(content: Any, choice: Any) -> Any:
    """Return a turn's content that shows the choice which the next turn follows, as it was if there is no such one."""
    shown = content | {"shown": choice} if isinstance(content, dict) and isinstance(choice, int) else content
    return shown if shown_choice(shown) else content


def title_of(text: str) -> str:
    """Return a title: the beginning of a text in one line."""
    line = " ".join(text[: 8 * TITLE_CHARS].replace("\0", " ").split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"


def question_title(content: Any) -> str:
    """Return a title for a chat that begins with this question: what was typed, or the names of its files."""
    typed, names = question_split(content)
    return title_of(typed or ", ".join(names))


def message_of(role: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn as a message of OpenAI's API, with the calls of the shown choice; the page has the same rules."""
    content = body.get("content")
    if not isinstance(content, dict):
        answered = {"tool_call_id": body["tool_call_id"]} if role == "tool" and "tool_call_id" in body else {}
        return {"role": role, "content": _sent(content), **answered}
    message: dict[str, Any] = {"role": role, "content": content_text(content)}
    calls = shown_choice(content).get("calls")
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_tool_call(call, place) for place, call in enumerate(calls) if isinstance(call, dict)]
    return message


def _sent(content: Any) -> Any:
    """Return a content as the API has it: without the marks of attached files."""
    if not isinstance(content, list):
        return content
    return [_without_marks(part) if isinstance(part, dict) else part for part in content]


def _without_marks(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in MARKS}


def _tool_call(call: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a call as the API has it. One without an id is answered by its place."""
    function = {"name": call.get("name"), "arguments": call.get("arguments")}
    return {"id": call.get("id") or f"call-{place}", "type": "function", "function": function}


def takes_tools(role: str, body: Mapping[str, Any]) -> bool:
    """Return True if a turn is a tool's result, calls tools in any choice, or was asked for with tools."""
    asked, content = body.get("parameters"), body.get("content")
    fields = asked.get("fields") if isinstance(asked, dict) else None
    choices = content.get("choices") if isinstance(content, dict) else None
    calls = [choice.get("calls") for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    return role == "tool" or any(calls) or bool(isinstance(fields, dict) and fields.get("tools"))


def answer_content(text: str, calls: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of an answer with one choice."""
    return {"choices": [{"content": text, "reasoning": "", "calls": list(calls)}], "shown": 0}
