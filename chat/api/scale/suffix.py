"""`suffix`: the answer goes between the text of the last user message and this text, in the way the model was trained to fill in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.request.fields import echo
from chat.api.request.parsed import ParsedRequest
from chat.api.request.parts import TEXT_PARTS
from chat.errors import ApiError
from engine.api import RawPrompt


def raw_prompt(parsed: ParsedRequest, suffix: str, fields: Mapping[str, Any]) -> RawPrompt:
    """Return the prompt to fill in. `fields` are those that were sent. Raises ApiError.

    The engine checks whether the model can fill in.
    """
    generation, prompt = parsed.generation, parsed.generation.prompt
    for_templates = {
        "tools": generation.tools,
        "chat_template": prompt.chat_template,
        "chat_template_kwargs": fields.get("chat_template_kwargs"),
        "documents": prompt.documents,
        "continue_final_message": prompt.continue_final_message,
        "echo": parsed.response.echo,
    }
    for name, is_used in for_templates.items():
        if is_used:
            sent = parsed.field_names(name)
            message = f"suffix cannot be combined with {sent}, as no chat template is used then; leave one of them out"
            raise ApiError("invalid_value", message, "suffix")
    messages = parsed.messages
    users = [
        place for place, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"
    ]
    if not users:
        raise ApiError(
            "invalid_value",
            "messages must hold a message of the user with suffix: the answer goes between the two",
            "messages",
        )
    path = parsed.field_names(f"messages.{users[-1]}.content")
    return RawPrompt(text=_text(messages[users[-1]].get("content"), path), suffix=suffix, param="messages")


def _text(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        is_text = isinstance(part, dict) and part.get("type") in TEXT_PARTS
        text = part.get("text") if is_text else part
        if not isinstance(text, str):
            raise ApiError("invalid_value", f"{path} must be text alone with suffix, got {echo(part)}", path)
        texts.append(text)
    return "".join(texts)
