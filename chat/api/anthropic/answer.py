"""Write the answer to a request that does not stream: one message, from the engine's events."""

from __future__ import annotations

import re
from typing import Any

import orjson

from chat.api.anthropic.blocks import Kind, Piece, Signature, message_object, pieces, stop_fields
from chat.api.dialect import AnswerHead
from engine.api import ChoiceFinished, Completed, Delta, Event, Usage

WORDS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>"?)|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
CLOSERS = {"{": "}", "[": "]"}


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
        return {"type": "text", "text": text, "citations": None}
    if first.kind is Kind.THINKING:
        signature = Signature()
        signature.add(text)
        return {"type": "thinking", "thinking": text, "signature": signature.text()}
    return {"type": "tool_use", "id": first.call_id, "name": first.name, "input": input_read(text)}


def input_read(arguments: str) -> dict[str, Any]:
    """Return the object in a JSON text, its complete part if it breaks off; `{"input": …}` for other values and text.

    A value that is nested more deeply than an answer can be written stays text.
    """
    if not arguments.strip():
        return {}
    value = _parsed(arguments)
    if value is None and arguments.lstrip().startswith("{"):
        value = _parsed(complete_part(arguments)) or {}
    if not isinstance(value, dict):
        value = {"input": arguments if value is None else value}
    return value if _is_writable(value) else {"input": arguments}


def complete_part(text: str) -> str:
    """Return a JSON text up to its last complete value, with its open brackets closed. Not recursive."""
    open_brackets: list[str] = []
    end, depth = 0, 0
    expects_name = False
    for match in WORDS.finditer(text):
        word = match.group()
        if word in CLOSERS:
            open_brackets.append(word)
            end, depth = match.end(), len(open_brackets)
            expects_name = word == "{"
        elif word in ("}", "]"):
            if not open_brackets:
                break
            open_brackets.pop()
            end, depth = match.end(), len(open_brackets)
        elif word == ",":
            expects_name = bool(open_brackets) and open_brackets[-1] == "{"
        elif word == ":":
            expects_name = False
        elif word.startswith('"') and not match["end"]:
            break
        elif not expects_name and (match["end"] or match.end() < len(text)):
            end, depth = match.end(), len(open_brackets)
    return text[:end] + "".join(CLOSERS[bracket] for bracket in reversed(open_brackets[:depth]))


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_writable(value: dict[str, Any]) -> bool:
    """Return True if an answer can hold the value: the JSON writer goes less deep than the reader."""
    try:
        orjson.dumps({"content": [{"input": value}]})
    except orjson.JSONEncodeError:
        return False
    return True
