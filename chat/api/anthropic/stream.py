"""Write the events of a streamed answer, in the order in which Anthropic's clients take them.

`message_start` and a `ping` with the first token; for each block its start, deltas and stop, thinking with its
signature before the stop; `message_delta` with the reason and the usage; `message_stop`. Chunks are made for each
token: text around the one part that needs escaping.
"""

from __future__ import annotations

from chat.api.answering.streaming import compact_json, json_string
from chat.api.anthropic.blocks import Kind, Piece, Signature, message_object, pieces, stop_fields, usage_object
from chat.api.anthropic.errors import error_body
from chat.api.dialect import AnswerHead
from chat.errors import ApiError
from engine.api import ChoiceFinished, Completed, Delta, Event, Usage

DELTAS = {
    Kind.TEXT: ("text_delta", "text"),
    Kind.THINKING: ("thinking_delta", "thinking"),
    Kind.TOOL_USE: ("input_json_delta", "partial_json"),
}


def event_frame(name: str, fields: str = "") -> bytes:
    """Return the frame of an event. `fields` are its further JSON members, each with a comma before it, in ASCII."""
    return f'event: {name}\ndata: {{"type":"{name}"{fields}}}\n\n'.encode("ascii")


class MessageStream:
    """A writer of streams: `feed` returns the frames that are due after an event, b"" for none."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head
        self._has_begun = False
        self._has_calls = False
        self._num_blocks = 0
        self._open: Piece | None = None
        self._signature = Signature()
        self._stop: dict[str, str | None] = {}

    def feed(self, event: Event) -> bytes:
        payload = event.payload
        if isinstance(payload, Delta):
            return self._begin() + self._pieces(payload)
        if isinstance(payload, ChoiceFinished):
            frames = self._begin() + self._pieces(payload) + self._close()
            self._stop = stop_fields(payload, has_calls=self._has_calls)
            return frames
        if isinstance(payload, Completed):
            return self._begin() + self._end(payload.usage)
        return b""

    def error(self, error: ApiError) -> bytes:
        """Return the last frame of a stream that cannot go on.

        An open block stays open: nothing more is known of it.
        """
        body = error_body(error, self.head.request_id)
        return event_frame(
            "error", f',"error":{compact_json(body["error"])},"request_id":{json_string(self.head.request_id)}'
        )

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        usage = Usage(prompt_tokens=self.head.num_prompt_tokens)
        message = message_object(self.head, [], {"stop_reason": None, "stop_sequence": None}, usage)
        return event_frame("message_start", f',"message":{compact_json(message)}') + event_frame("ping")

    def _pieces(self, payload: Delta | ChoiceFinished) -> bytes:
        frames = b""
        for piece in pieces(payload, shows_thinking=self.head.includes_reasoning):
            if not piece.belongs_to(self._open):
                frames += self._close() + self._start(piece)
            if piece.text:
                frames += self._delta(piece)
        return frames

    def _start(self, piece: Piece) -> bytes:
        self._open = piece
        if piece.kind is Kind.TEXT:
            block = '{"type":"text","text":""}'
        elif piece.kind is Kind.THINKING:
            self._signature = Signature()
            block = '{"type":"thinking","thinking":"","signature":""}'
        else:
            self._has_calls = True
            block = (
                f'{{"type":"tool_use","id":{json_string(piece.call_id)},"name":{json_string(piece.name)},"input":{{}}}}'
            )
        return event_frame("content_block_start", f',"index":{self._num_blocks},"content_block":{block}')

    def _delta(self, piece: Piece) -> bytes:
        if piece.kind is Kind.THINKING:
            self._signature.add(piece.text)
        kind, member = DELTAS[piece.kind]
        return self._delta_frame(f'{{"type":"{kind}","{member}":{json_string(piece.text)}}}')

    def _delta_frame(self, delta: str) -> bytes:
        return event_frame("content_block_delta", f',"index":{self._num_blocks},"delta":{delta}')

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        frames = b""
        if self._open.kind is Kind.THINKING:
            frames = self._delta_frame(
                f'{{"type":"signature_delta","signature":{json_string(self._signature.text())}}}'
            )
        frames += event_frame("content_block_stop", f',"index":{self._num_blocks}')
        self._open = None
        self._num_blocks += 1
        return frames

    def _end(self, usage: Usage) -> bytes:
        delta = compact_json(self._stop)
        return event_frame(
            "message_delta", f',"delta":{delta},"usage":{compact_json(usage_object(usage))}'
        ) + event_frame("message_stop")
