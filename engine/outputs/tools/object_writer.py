"""Writes the arguments of a call as one JSON object, member by member, for formats that name each parameter."""

from __future__ import annotations

from engine.outputs.tools.parameters import quote
from engine.outputs.tools.scripted import PieceCollector


class ObjectWriter:
    """A writer of one object. After each `member` write its value: JSON text with `raw`, or a string piece by piece.

    writer.member("city"); writer.open_string(); writer.string("Par"); writer.string("is"); writer.close_string()
    writer.member("days"); writer.raw("3")
    writer.end()    # {"city": "Paris", "days": 3}
    """

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
        """Write more of the open string."""
        self._answer.arguments(quote(text)[1:-1])

    def close_string(self) -> None:
        self._answer.arguments('"')

    def end(self) -> None:
        """Complete the object and with it the call."""
        if self._num_members:
            self._answer.arguments("}")
        self._answer.end()
