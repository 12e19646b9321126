"""Parsers of answers that a grammar forces to be calls.

The answers are JSON without markers, incomplete only if they are cut.
"""

from __future__ import annotations

from engine.outputs.pieces import ContentText, Piece
from engine.outputs.tools.json_calls import JsonCallFormat, JsonCallParser
from engine.outputs.tools.reader import Steps
from engine.outputs.tools.scripted import ScriptedParser
from engine.outputs.tools.values import read_value


class RequiredCallsReader(JsonCallParser):
    """A parser of `[{"name": …, "parameters": …}, …]`: one call per item."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, JsonCallFormat(is_bare=True))

    def flush(self) -> list[Piece]:
        """End the answer as ScriptedParser does, but drop the beginning of a call that is cut before its name."""
        return [piece for piece in super().flush() if not isinstance(piece, ContentText)]


class NamedCallReader(ScriptedParser):
    """A parser of the arguments of a single call.

    The call begins with the first character, so an empty answer has no call.
    """

    def __init__(self, name: str) -> None:
        super().__init__(frozenset({name}))
        self._name = name

    def _run(self) -> Steps[None]:
        yield from self._reader.skip_space()
        if not (yield from self._reader.peek()):
            return
        self._answer.start(self._name)
        if (yield from read_value(self._reader, self._answer.arguments)):
            self._answer.end()
        yield from self._reader.skip_space()
        yield from self._reader.until((), self._answer.content)
