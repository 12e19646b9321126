"""Turn the engine's deltas into pieces of content blocks: thinking, text and tool calls, in order.

A block ends where a piece of another one begins, so that any split of the deltas gives the same blocks.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.utils.crypto import salted_hmac

from chat.api.dialect import AnswerHead
from engine.api import ChoiceFinished, Delta, FinishReason, Usage


class Kind(Enum):
    THINKING = "thinking"
    TEXT = "text"
    TOOL_USE = "tool_use"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one block. `call` is its number among the calls, -1 for others; the first of a call has id and name."""

    kind: Kind
    text: str = ""
    call: int = -1
    call_id: str = ""
    name: str = ""

    def belongs_to(self, other: Piece | None) -> bool:
        return other is not None and self.kind is other.kind and self.call == other.call


def pieces(payload: Delta | ChoiceFinished, *, shows_thinking: bool) -> Iterator[Piece]:
    """Yield the pieces of a delta, or of the end of the answer."""
    if payload.reasoning and shows_thinking:
        yield Piece(Kind.THINKING, payload.reasoning)
    if payload.text:
        yield Piece(Kind.TEXT, payload.text)
    for call in payload.tool_calls:
        yield Piece(Kind.TOOL_USE, call.arguments, call.index, call.id, call.name)


class Signature:
    """The signature of a thinking block, which clients must send back. The server checks none."""

    def __init__(self) -> None:
        self._mac = salted_hmac("chat.dialects.messages.thinking", "", algorithm="sha256")

    def add(self, text: str) -> None:
        self._mac.update(text.encode())

    def text(self) -> str:
        return base64.b64encode(self._mac.digest()).decode()


def stop_fields(finished: ChoiceFinished, *, has_calls: bool) -> dict[str, str | None]:
    """Return `stop_reason`, and the sequence that stopped the answer, if one did."""
    if finished.reason is FinishReason.LENGTH:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if finished.reason is FinishReason.STOP and isinstance(finished.stop_reason, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop_reason}
    return {"stop_reason": "tool_use" if has_calls else "end_turn", "stop_sequence": None}


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return token counts.

    Those read from the cache are not part of `input_tokens`; those written there are not counted.
    """
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def message_object(
    head: AnswerHead, content: list[dict[str, Any]], stop: dict[str, str | None], usage: Usage
) -> dict[str, Any]:
    tier = "priority" if head.service_tier == "priority" else "standard"
    creation = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    return {
        "id": f"msg_{head.request_id}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **stop,
        "usage": {**usage_object(usage), "cache_creation": creation, "service_tier": tier},
        **head.echo_fields,
    }
