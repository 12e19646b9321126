"""Calls written as JSON objects, one by one or in a list, between markers or bare.

The arguments are passed on as they come, exactly as the model writes them.
"""

from __future__ import annotations

from engine.outputs.tools.json_object import JsonCallFormat, JsonObjectCall
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import Held, ScriptedParser


class JsonCallParser(ScriptedParser):
    """Content up to a begin marker; after it objects, single or in a list."""

    def __init__(self, names: frozenset[str], call_format: JsonCallFormat) -> None:
        super().__init__(names, call_format.markers)
        self._format = call_format

    def _run(self) -> Steps[None]:
        if self._format.is_bare:
            yield from self._read_block(Held(self._answer), is_marked=False)
        stops = self._format.begins + self._format.dropped + (("{",) if self._format.is_inline else ())
        while marker := (yield from self._reader.until(stops, self._answer.content)):
            if marker in self._format.dropped:
                yield from self._reader.skip_space()
            elif marker == "{":
                self._reader.give_back(marker)
                yield from self._read_block(Held(self._answer), is_marked=False)
            else:
                yield from self._read_block(Held(self._answer, marker))

    def _read_block(self, held: Held, is_marked: bool = True, loose_names: frozenset[str] | None = None) -> Steps[bool]:
        """Objects, what is between them, and the end marker: whether some was a call. Where an object is content, what surrounds it is too.

        `loose_names`: only calls of these functions count, and only with arguments.
        """
        yield from self._take_opening(held)
        has_called = has_content = False
        if not is_marked and (yield from self._reader.peek()) != "{":
            held.release()  # what comes next may be a marker, even where it is one of the ends
            return False
        while (yield from self._reader.peek()) == "{":
            call = JsonObjectCall(self._reader, self._answer, held, self._format, loose_names)
            is_call = yield from call.read(is_marked or has_called)
            has_called, has_content = has_called or is_call, has_content or not is_call
            if not is_call and not is_marked:
                return has_called
            yield from self._reader.take_run(SPACE + "]}", held.write)
            if not has_content:
                held.drop()
            yield from self._reader.take_run(SPACE + ",;", held.write)
        held.write(end := (yield from self._reader.take(*self._format.ends)))
        if end and has_called and not has_content:
            held.drop()
        held.release()
        return has_called

    def _take_opening(self, held: Held) -> Steps[None]:
        for literals in (self._format.openers, ("[",)):
            yield from self._reader.take_run(SPACE, held.write)
            held.write((yield from self._reader.take(*literals)))
        yield from self._reader.take_run(SPACE, held.write)
