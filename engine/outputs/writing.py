"""Collects reasoning, text and tool calls of one choice between two events."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.events import ToolCallDelta
from engine.outputs.parsing import ChoiceParsers
from engine.outputs.pieces import CallArguments, CallEnd, CallStart, ContentText, Piece, ReasoningText


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What a choice has produced since the last event, as fields of a Delta."""

    reasoning: str
    text: str
    calls: tuple[ToolCallDelta, ...]


class OutputWriter:
    """A buffer that routes content through the parser of tool calls, if there is one.

    Text counts only before the first call, and only if it is more than white space.
    """

    def __init__(self, parsers: ChoiceParsers) -> None:
        self.num_calls = 0
        self.is_full = False
        """The only call that is allowed is complete; all further output is ignored."""
        self._parser = parsers.calls
        self._parsers = parsers
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._arguments: list[str] = []
        self._space: list[str] = []
        self._has_text = False

    def write_reasoning(self, text: str) -> None:
        self._reasoning.append(text)

    def write_content(self, text: str) -> None:
        """Take content as the model wrote it, including calls."""
        if self._parser is None:
            self._text.append(text)
        else:
            self._write_pieces(self._parser.feed(text))

    def write_text(self, text: str) -> None:
        """Take text that is not searched for calls; dropped after the first call."""
        if self.num_calls:
            return
        if self._parser is not None and not self._has_text and not text.strip():
            self._space.append(text)
            return
        self._text += [*self._space, text]
        self._space.clear()
        self._has_text = True

    def flush(self) -> None:
        """End the content: take what its parser still holds back."""
        if self._parser is not None:
            self._write_pieces(self._parser.flush())
        if not self.num_calls:
            self._text += self._space
        self._space.clear()

    def drain(self) -> OutputDelta:
        """Return what has been written since the last call."""
        self._end_arguments()
        delta = OutputDelta("".join(self._reasoning), "".join(self._text), tuple(self._calls))
        self._reasoning.clear()
        self._text.clear()
        self._calls.clear()
        return delta

    def _write_pieces(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if self.is_full:
                return
            match piece:
                case ContentText(text):
                    self.write_text(text)
                case ReasoningText(text):
                    self.write_reasoning(text)
                case CallStart(name, call_id):
                    self._end_arguments()
                    index = self.num_calls
                    self.num_calls += 1
                    self._calls.append(ToolCallDelta(index, call_id or self._parsers.make_call_id(index, name), name))
                case CallArguments(text):
                    self._arguments.append(text)
                case CallEnd():
                    self.is_full = self._parsers.takes_one_call

    def _end_arguments(self) -> None:
        """Join the arguments of the open call, so that an event has them in one delta, after the one with the name."""
        if self._arguments:
            self._calls.append(ToolCallDelta(self.num_calls - 1, arguments="".join(self._arguments)))
            self._arguments.clear()
