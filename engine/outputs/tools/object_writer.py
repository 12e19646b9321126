"""Writes the arguments of a call as one JSON object, member by member, where a format names each parameter on its own."""

from __future__ import annotations

from engine.outputs.tools.parameters import quote
from engine.outputs.tools.scripted import PieceCollector


class ObjectWriter:
    """Each `member` is followed by its value: through `raw` as JSON text, or between `open_string` and `close_string` piece by piece."""

    def __init__(self, answer: PieceCollector) -> None:
        self._answer = answer
        self._num_members = 0

    def member(self, key: str) -> None:
        self._answer.arguments(("{" if self._num_members == 0 else ", ") + quote(key) + ": ")
        self._num_members += 1

    def raw(self, text: str) -> None:
        self._answer.arguments(text)

    def open_string(self) -> None:
        self._answer.arguments('"')

    def string(self, text: str) -> None:
        """More of the open string."""
        self._answer.arguments(quote(text)[1:-1])

    def close_string(self) -> None:
        self._answer.arguments('"')

    def end(self) -> None:
        """The object, and with it the call, is complete."""
        if self._num_members:
            self._answer.arguments("}")
        self._answer.end()
