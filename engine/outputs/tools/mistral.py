"""Calls of Mistral: `[TOOL_CALLS]` and a JSON list of calls.

Newer tokenizers put a name and its arguments after each marker.

[TOOL_CALLS][{"name": …, "arguments": {…}}]     [TOOL_CALLS]NAME{…}     [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{…}
"""

from __future__ import annotations

import string

from engine.outputs.tools.json_calls import JsonCallFormat, JsonCallParser
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import HeldText
from engine.outputs.tools.values import read_value

MARKER, CALL_ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
MISTRAL = JsonCallFormat(begins=(MARKER,))
ALPHANUMERIC = string.ascii_letters + string.digits
ID_LENGTH = 9


class MistralParser(JsonCallParser):
    """A parser of both forms."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, MISTRAL)
        self.control_texts |= {CALL_ID, ARGUMENTS}

    def _read_block(
        self, held: HeldText, is_marked: bool = True, loose_names: frozenset[str] | None = None
    ) -> Steps[bool]:
        yield from self._reader.take_run(SPACE, held.write)
        if (yield from self._reader.peek()) in ("[", "{"):
            return (yield from super()._read_block(held, is_marked, loose_names))
        name: list[str] = []
        yield from self._reader.take_run(ALPHANUMERIC + "_-.", name.append)
        held.write("".join(name))
        call_id = yield from self._read_call_id(held)
        held.write((yield from self._reader.take(ARGUMENTS)))
        yield from self._reader.take_run(SPACE, held.write)
        is_call = "".join(name) in self._answer.names and bool((yield from self._reader.see("{")))
        if is_call:
            self._answer.start("".join(name), call_id)
            held.drop()
            if (yield from read_value(self._reader, self._answer.arguments, (MARKER,))):
                self._answer.end()
        held.release()
        return is_call

    def _read_call_id(self, held: HeldText) -> Steps[str]:
        """Read the model's own id; "" if it lacks the form that the template accepts."""
        parts: list[str] = []
        marker = yield from self._reader.take(CALL_ID)
        if marker:
            yield from self._reader.take_run(ALPHANUMERIC, parts.append)
        call_id = "".join(parts)
        held.write(marker + call_id)
        return call_id if len(call_id) == ID_LENGTH else ""
