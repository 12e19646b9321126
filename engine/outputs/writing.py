"""What goes out of an answer next: its reasoning, its text and its calls, collected between two events."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.tools import ToolCallDelta
from engine.outputs.parsing import ChoiceParsers
from engine.outputs.pieces import CallArguments, CallEnd, CallStart, ContentText, Piece, ReasoningText


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """As the fields of a Delta."""

    reasoning: str
    text: str
    calls: tuple[ToolCallDelta, ...]


class OutputWriter:
    """Content goes through the parser of calls, if there is one. The text is what stands before the first call, nothing if that is only
    white space; it is dropped after it. `is_full`: the one call that may be is complete, and nothing more is taken.
    """

    def __init__(self, parsers: ChoiceParsers) -> None:
        self.num_calls = 0
        self.is_full = False
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
        """Content as the model wrote it, calls and all."""
        if self._parser is None:
            self._text.append(text)
        else:
            self._write_pieces(self._parser.feed(text))

    def write_text(self, text: str) -> None:
        """Text before the first call, in which nobody looks for calls."""
        if self.num_calls:
            return
        if self._parser is not None and not self._has_text and not text.strip():
            self._space.append(text)
            return
        self._text += [*self._space, text]
        self._space.clear()
        self._has_text = True

    def flush(self) -> None:
        """The content has ended."""
        if self._parser is not None:
            self._write_pieces(self._parser.flush())
        if not self.num_calls:
            self._text += self._space
        self._space.clear()

    def drain(self) -> OutputDelta:
        """What has been written since the last time."""
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
        """Arguments of the open call make one piece in one event, behind the one with the name."""
        if self._arguments:
            self._calls.append(ToolCallDelta(self.num_calls - 1, arguments="".join(self._arguments)))
            self._arguments.clear()
