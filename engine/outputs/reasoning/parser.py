"""What all reasoning parsers have in common, and where the prompt leaves the reasoning."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from engine.outputs.pieces import OutputParser


class ReasoningState(Enum):
    """What the prompt says of the reasoning, behind the last header of the assistant: nothing, that it is open, or over."""

    UNKNOWN = "unknown"
    OPEN = "open"
    CLOSED = "closed"


class ReasoningParser(OutputParser, Protocol):
    """Says `Reasoning` and `Content`. `is_open`: reasoning goes on. `is_over`: none can come, and all further text is content as it is.

    `is_shown`: what it calls reasoning belongs into the content, where nobody looks for tool calls in it.
    """

    @property
    def is_open(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def is_shown(self) -> bool: ...
