"""What the parsers of a model's output say of its text, piece by piece; the pipeline turns pieces into events.

A parser is fed the text of one choice in whatever pieces it comes, and must say the same of every split of it: `feed` and `flush`
may cut a text or arguments into several pieces, but joined they are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ContentText:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """Text that the model has thought before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call is committed: its name is read and is one of the tools'. `call_id`: an id that the model itself gave, else ''."""

    name: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next characters of the open call's arguments, JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The open call is complete."""


Piece = ContentText | ReasoningText | CallStart | CallArguments | CallEnd


class OutputParser(Protocol):
    """One per choice. `control_texts`: markers that it looks for; tokens of these texts reach it although they are special."""

    control_texts: frozenset[str]

    def feed(self, text: str) -> list[Piece]:
        """Take the next text; never raises, whatever the model has written."""

    def flush(self) -> list[Piece]:
        """The answer has ended: what is still held back."""
