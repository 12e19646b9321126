"""Reasoning between two tags: the parser of every format but harmony."""

from __future__ import annotations

from collections.abc import Callable

from engine.outputs.markers import MarkerCutter, TagAhead
from engine.outputs.pieces import ContentText, Piece, ReasoningText
from engine.outputs.reasoning.formats import ReasoningFormat
from engine.outputs.reasoning.parser import ReasoningState


class TagParser:
    """A parser of one answer with stages: `_opening` → `_reasoning` → (`_lead` → `_wrapped` →)* or `_answer`.

    Each stage consumes text and returns the rest, which the next stage reads.
    """

    def __init__(self, format: ReasoningFormat, state: ReasoningState = ReasoningState.UNKNOWN) -> None:
        self.control_texts = format.control_texts
        self.is_open = self.is_over = False
        self.is_shown = format.is_shown
        self._format = format
        self._needs_start = format.needs_start and state is ReasoningState.UNKNOWN
        self._opener = TagAhead(*format.starts)
        self._ender = MarkerCutter(*_with_breaks(format.ends, format.takes_breaks))
        self._leader: TagAhead
        self._closer: MarkerCutter
        self._stage: Callable[[str], str] = self._opening
        self._pieces: list[Piece] = []
        self._skips_break = False
        if state is ReasoningState.CLOSED:
            self._begin_content()
        elif not self._needs_start:
            self._begin_reasoning("")

    def feed(self, text: str) -> list[Piece]:
        while text:
            if self._skips_break:
                self._skips_break = False
                text = text.removeprefix("\n")
                continue
            text = self._stage(text)
        return self._drain()

    def flush(self) -> list[Piece]:
        if self._stage == self._opening:
            self._write_opening("".join(self._opener.flush()))
        elif self._stage == self._reasoning:
            self._write_reasoning(self._ender.flush())
        elif self._stage == self._lead:
            self._write_content(self._leader.flush()[1])
        elif self._stage == self._wrapped:
            self._write_content(self._closer.flush())
        return self._drain()

    # The stages

    def _opening(self, text: str) -> str:
        """Read white space and an optional start tag."""
        found = self._opener.feed(text)
        if found is None:
            return ""
        space, tag, rest = found
        if not tag and self._needs_start:
            self._begin_content()
            return space + rest
        if not self.is_open:
            self._begin_reasoning(tag)
        self._stage = self._reasoning
        self._skips_break = bool(tag) and self._format.takes_breaks
        return rest if tag else space + rest

    def _reasoning(self, text: str) -> str:
        before, *found = self._ender.feed(text, most=1)
        self._write_reasoning(before)
        if not found:
            return ""
        tag, rest = found
        if self.is_shown:
            self._write_reasoning(tag)
        self.is_open = False
        self._begin_content()
        return rest

    def _lead(self, text: str) -> str:
        """Skip white space and the optional tag that opens the content."""
        found = self._leader.feed(text)
        if found is None:
            return ""
        _, tag, rest = found
        self._stage = self._wrapped if tag else self._answer
        self._skips_break, self.is_over = bool(tag), not tag
        return rest

    def _wrapped(self, text: str) -> str:
        before, *found = self._closer.feed(text, most=1)
        self._write_content(before)
        if not found:
            return ""
        self._begin_content()
        return found[1]

    def _answer(self, text: str) -> str:
        self._write_content(text)
        return ""

    # Between the stages

    def _begin_reasoning(self, tag: str) -> None:
        self.is_open = True
        if self.is_shown:
            self._write_reasoning(tag or self._format.starts[0])

    def _begin_content(self) -> None:
        wrapper = self._format.wrapper
        if wrapper is None:
            self._stage, self.is_over = self._answer, True
            return
        self._leader = TagAhead(wrapper[0])
        self._closer = MarkerCutter(*_with_breaks(wrapper[1:], True))
        self._stage = self._lead

    def _write_opening(self, text: str) -> None:
        if self._needs_start:
            self._write_content(text)
        else:
            self._write_reasoning(text)

    def _write_reasoning(self, text: str) -> None:
        if text:
            self._pieces.append(ReasoningText(text))

    def _write_content(self, text: str) -> None:
        if text:
            self._pieces.append(ContentText(text))

    def _drain(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces


def _with_breaks(tags: tuple[str, ...], takes_breaks: bool) -> tuple[str, ...]:
    return (*(f"\n{tag}" for tag in tags), *tags) if takes_breaks else tags
