"""The common part of the tool parsers: a script of reading steps that writes pieces, and the rules for content.

White space is dropped directly before a first call that no text precedes, between calls and after them. All other text
outside calls is content.
"""

from __future__ import annotations

from engine.outputs.pieces import CallArguments, CallEnd, CallStart, ContentText, Piece, ReasoningText
from engine.outputs.tools.reader import SPACE, Reader, Steps


class PieceCollector:
    """The pieces of one choice since the last feed. `names`: the functions that may be called."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.is_open = False
        self._pieces: list[Piece] = []
        self._space: list[str] = []
        self._has_text = False
        self._num_calls = 0
        self._has_arguments = False

    def take_pieces(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def content(self, text: str) -> None:
        """Write text outside calls.

        White space waits until the next text decides about it, except within the text before the first call.
        """
        stripped = text.lstrip(SPACE)
        if not stripped:
            self._hold_space(text)
            return
        space = text[: len(text) - len(stripped)]
        if self._has_text or not self._num_calls:
            self._write("".join(self._space) + space)
        self._space = []
        self._has_text = True
        kept = stripped.rstrip(SPACE) if self._num_calls else stripped
        self._write(kept)
        self._hold_space(stripped[len(kept) :])

    def _hold_space(self, space: str) -> None:
        if self._has_text and not self._num_calls:
            self._write(space)
        elif space:
            self._space.append(space)

    def _write(self, text: str) -> None:
        if text:
            self._pieces.append(ContentText(text))

    def reasoning(self, text: str) -> None:
        self._pieces.append(ReasoningText(text))

    def start(self, name: str, call_id: str = "") -> None:
        """Start a call; end one that is still open."""
        self.end()
        self._space = []
        self._has_text = False
        self._has_arguments = False
        self._num_calls += 1
        self.is_open = True
        self._pieces.append(CallStart(name, call_id))

    def arguments(self, text: str) -> None:
        if text:
            self._has_arguments = True
            self._pieces.append(CallArguments(text))

    def end(self) -> None:
        """End the open call, if any. A call without arguments gets `{}`."""
        if self.is_open:
            if not self._has_arguments:
                self.arguments("{}")
            self._pieces.append(CallEnd())
            self.is_open = False

    def flush(self) -> None:
        """End the answer. White space alone is content; after a call it is dropped."""
        if not self._num_calls:
            self._write("".join(self._space))
        self._space = []


class HeldText:
    """Markers and separators around calls, held until it is clear whether they belong to a call.

    `drop` them when a call starts; `release` them as content if none does.
    """

    def __init__(self, answer: PieceCollector, text: str = "") -> None:
        self._answer = answer
        self._parts = [text]

    def write(self, text: str) -> None:
        self._parts.append(text)

    def drop(self) -> None:
        self._parts = []

    def release(self) -> None:
        self._answer.content("".join(self._parts))
        self._parts = []


class ScriptedParser:
    """An `OutputParser` whose subclass reads the whole text in `_run`, as nested steps.

    class BracketParser(ScriptedParser):
        def _run(self) -> Steps[None]:
            while (yield from self._reader.until(("[[",), self._answer.content)):
                name: list[str] = []
                yield from self._reader.until(("]]",), name.append)
                if "".join(name) in self._answer.names:
                    self._answer.start("".join(name))
                    self._answer.end()
    """

    def __init__(self, names: frozenset[str], control_texts: frozenset[str] = frozenset()) -> None:
        self.control_texts = control_texts
        self._reader = Reader()
        self._answer = PieceCollector(names)
        self._script = self._run()

    def feed(self, text: str) -> list[Piece]:
        """Take the next text. Never raises, whatever the model writes."""
        self._reader.add(text)
        next(self._script, None)
        return self._answer.take_pieces()

    def flush(self) -> list[Piece]:
        """End the answer and return what was held back. An incomplete call stays open."""
        self._reader.has_ended = True
        next(self._script, None)
        self._answer.flush()
        return self._answer.take_pieces()

    def _run(self) -> Steps[None]:
        raise NotImplementedError


def read_rest(reader: Reader, answer: PieceCollector, ends: tuple[str, ...], begun: str = "") -> Steps[None]:
    """Take the rest of a malformed call, up to an end marker and the white space before it, as arguments."""
    space = [begun]

    def write(text: str) -> None:
        kept = text.rstrip(SPACE)
        if kept:
            answer.arguments("".join(space) + kept)
            space.clear()
        space.append(text[len(kept) :])

    if (yield from reader.until(ends, write)):
        answer.end()
