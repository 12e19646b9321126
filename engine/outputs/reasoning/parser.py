"""The interface of reasoning parsers, and the state of reasoning at the end of a prompt."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from engine.outputs.pieces import OutputParser


class ReasoningState(Enum):
    """The state of reasoning at the end of the prompt, after the last header of the assistant."""

    UNKNOWN = "unknown"
    """No marker follows the header: the answer decides."""
    OPEN = "open"
    CLOSED = "closed"


class ReasoningParser(OutputParser, Protocol):
    """A parser of one choice that splits text into `ReasoningText` and `ContentText`.

    Most formats need no parser of their own, only an entry in formats.py:

        ReasoningFormat("my_family", ("<thought>",), ("</thought>",), vocabulary=("<thought>", "</thought>"))

        parser = make_reasoning_parser(FORMATS["my_family"])
        parser.feed("<thought>why</thought>so")    # [ReasoningText("why"), ContentText("so")]
    """

    @property
    def is_open(self) -> bool:
        """Reasoning goes on."""

    @property
    def is_over(self) -> bool:
        """No more reasoning can come: all further text is content and need not be fed."""

    @property
    def is_shown(self) -> bool:
        """Reasoning is shown as content, which is then not searched for tool calls."""
