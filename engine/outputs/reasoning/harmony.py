"""Reasoning in the harmony format of gpt-oss (https://github.com/openai/harmony): channels instead of tags.

An answer is a sequence of messages: `<|channel|>NAME to=RECIPIENT<|constrain|>TYPE<|message|>TEXT` and an end marker.
Each further message begins with `<|start|>assistant`; the prompt ends after the first one.
"""

from __future__ import annotations

from enum import Enum

from engine.outputs.markers import MarkerCutter
from engine.outputs.pieces import ContentText, Piece, ReasoningText

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
LONGEST_HEADER = 512
"""A longer text is no header; it becomes content."""


class _Part(Enum):
    HEADER = "header"
    REASONING = "reasoning"
    CONTENT = "content"
    CALL = "call"


class HarmonyReasoningParser:
    """A parser for which channel `analysis` is reasoning and all other text is content.

    With `keeps_calls`, a message to a function keeps a header and its end marker, for the parser of tool calls. `head`
    is the part of the answer that the prompt already has, after `<|start|>`.
    """

    control_texts = frozenset((START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS))
    is_over = False
    is_shown = False

    def __init__(self, keeps_calls: bool = False, head: str = "") -> None:
        self._keeps_calls = keeps_calls
        self._cutter = MarkerCutter(*self.control_texts)
        self._part = _Part.HEADER
        self._header = ""
        self._pieces: list[Piece] = []
        self.feed(head)

    @property
    def is_open(self) -> bool:
        return self._part is _Part.REASONING

    def feed(self, text: str) -> list[Piece]:
        for index, piece in enumerate(self._cutter.feed(text)):
            if index % 2:
                self._read_marker(piece)
            elif piece:
                self._write(piece)
        return self._drain()

    def flush(self) -> list[Piece]:
        rest = self._cutter.flush()
        if rest:
            self._write(rest)
        if self._part is _Part.HEADER and CHANNEL not in self._header:
            self._pieces += [ContentText(self._header)] if self._header else []
            self._header = ""
        return self._drain()

    def _write(self, text: str) -> None:
        match self._part:
            case _Part.HEADER:
                self._extend_header(text)
            case _Part.REASONING:
                self._pieces.append(ReasoningText(text))
            case _:
                self._pieces.append(ContentText(text))

    def _extend_header(self, text: str) -> None:
        self._header += text
        if len(self._header) > LONGEST_HEADER:
            self._pieces.append(ContentText(self._header))
            self._header, self._part = "", _Part.CONTENT

    def _read_marker(self, marker: str) -> None:
        if marker == MESSAGE and self._part is _Part.HEADER:
            self._begin_text()
        elif marker in (CHANNEL, CONSTRAIN) and self._part is _Part.HEADER:
            self._extend_header(marker)
        elif marker in (START, CHANNEL):
            self._header, self._part = marker.removeprefix(START), _Part.HEADER
        elif marker in ENDS:
            if self._part is _Part.CALL and self._keeps_calls:
                self._pieces.append(ContentText(marker))
            self._header, self._part = "", _Part.HEADER

    def _begin_text(self) -> None:
        """Decide from the complete header which text follows. The recipient may precede or follow the channel."""
        before, _, after = self._header.partition(CHANNEL)
        words = after.replace(CONSTRAIN, " ").split()
        recipient = next((word for word in (*before.split(), *words) if word.startswith("to=functions.")), "")
        self._header = ""
        if recipient:
            self._part = _Part.CALL
            self._pieces += [ContentText(f"{CHANNEL}commentary {recipient}{MESSAGE}")] if self._keeps_calls else []
        else:
            self._part = _Part.REASONING if words[:1] == ["analysis"] else _Part.CONTENT

    def _drain(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces
