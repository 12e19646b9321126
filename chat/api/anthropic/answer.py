"""Write the answer to a request that does not stream: one message, from the engine's events."""

from __future__ import annotations

from typing import Any

import orjson

from chat.api.anthropic.blocks import Kind, Piece, Signature, message_object, pieces, stop_fields
from chat.api.chat_format.arguments import input_read
from chat.api.dialect import AnswerHead
from engine.api import ChoiceFinished, Completed, Delta, Event, Usage


class MessageAnswer:
    """A writer of whole messages: `feed` every event, then take `body`."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self._blocks: list[list[Piece]] = []
        self._finished: ChoiceFinished | None = None
        self._usage = Usage(prompt_tokens=head.num_prompt_tokens)

    def feed(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, Delta | ChoiceFinished):
            for piece in pieces(payload, shows_thinking=self.head.includes_reasoning):
                self._add(piece)
        if isinstance(payload, ChoiceFinished):
            self._finished = payload
        elif isinstance(payload, Completed):
            self._usage = payload.usage

    def _add(self, piece: Piece) -> None:
        if self._blocks and piece.belongs_to(self._blocks[-1][0]):
            self._blocks[-1].append(piece)
        else:
            self._blocks.append([piece])

    def body(self) -> bytes:
        assert self._finished is not None, "a run completed before its choice did"
        has_calls = any(block[0].kind is Kind.TOOL_USE for block in self._blocks)
        stop = stop_fields(self._finished, has_calls=has_calls)
        return orjson.dumps(message_object(self.head, [_block(block) for block in self._blocks], stop, self._usage))


def _block(block: list[Piece]) -> dict[str, Any]:
    first, text = block[0], "".join(piece.text for piece in block)
    if first.kind is Kind.TEXT:
        return {"type": "text", "text": text}
    if first.kind is Kind.THINKING:
        signature = Signature()
        signature.add(text)
        return {"type": "thinking", "thinking": text, "signature": signature.text()}
    return {"type": "tool_use", "id": first.call_id, "name": first.name, "input": input_read(text)}
