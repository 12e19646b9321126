"""The pieces that output parsers return, and the interface of these parsers. The pipeline turns pieces into events.

A parser gets the text of one choice in arbitrary fragments. Its pieces, with neighbouring texts and arguments joined,
are the same for every split of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ContentText:
    """Text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """Text of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a call, sent once its name is read and is that of a tool."""

    name: str
    call_id: str = ""
    """The id that the model itself gave, else ""."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next characters of the open call's arguments, JSON text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The open call is complete."""


Piece = ContentText | ReasoningText | CallStart | CallArguments | CallEnd


class OutputParser(Protocol):
    """A parser of the text of one choice.

    parser = make_tool_parser("hermes", tools)
    parser.feed('<tool_call>{"name": "f", "argu')     # [CallStart("f")]
    parser.feed('ments": {}}</tool_call>')            # [CallArguments("{}"), CallEnd()]
    parser.flush()                                    # []
    """

    control_texts: frozenset[str]
    """Markers that it looks for. Special tokens with these texts reach the parser as text."""

    def feed(self, text: str) -> list[Piece]:
        """Take the next text. Never raises, whatever the model writes."""

    def flush(self) -> list[Piece]:
        """End the answer and return what was held back."""
