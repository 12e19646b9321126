"""Calls written as Python: `[f(a=1, b="x"), g()]`, or one call per line. Arguments are literals; nothing is evaluated.

An argument is sent as JSON when it is complete. One that is no literal becomes a string of its text.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

from engine.outputs.tools.literals import literal_to_json
from engine.outputs.tools.object_writer import ObjectWriter
from engine.outputs.tools.parameters import quote
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import HeldText, ScriptedParser
from engine.outputs.tools.values import PYTHON, PYTHON_REST, read_value

NAME_CHARACTERS = string.ascii_letters + string.digits + "_.-"


@dataclass(frozen=True, slots=True)
class PythonCallFormat:
    """The differences between families that write calls as Python."""

    begins: tuple[str, ...] = ()
    """Markers before the calls."""
    ends: tuple[str, ...] = ()
    """Markers after the calls."""
    is_bare: bool = False
    """The answer may also begin with the list, without a marker."""
    needs_list: bool = True
    """Calls must be in brackets."""


class PythonCallParser(ScriptedParser):
    """A parser that takes text as content up to a begin marker, then reads calls."""

    def __init__(self, names: frozenset[str], call_format: PythonCallFormat) -> None:
        super().__init__(names, frozenset(call_format.begins + call_format.ends))
        self._format = call_format

    def _run(self) -> Steps[None]:
        if self._format.is_bare:
            held = HeldText(self._answer)
            yield from self._read_block(held, is_marked=False)
            held.release()
        while marker := (yield from self._reader.until(self._format.begins, self._answer.content)):
            held = HeldText(self._answer, marker)
            yield from self._read_block(held)
            held.release()

    def _read_block(self, held: HeldText, is_marked: bool = True) -> Steps[None]:
        """Read calls, separators and the end marker, up to text that is no call.

        If a call is content, so are the separators and markers around it.
        """
        yield from self._reader.take_run(SPACE, held.write)
        bracket = yield from self._reader.take("[")
        held.write(bracket)
        if self._format.needs_list and not bracket:
            return
        yield from self._reader.take_run(SPACE, held.write)
        has_content = False
        while True:
            if not (yield from self._read_call(held)):
                has_content = True
                if self._answer.is_open or not is_marked or not (yield from self._skip_call(held)):
                    return
            yield from self._reader.take_run(SPACE + ",;", held.write)
            if (yield from self._reader.see("]", *self._format.ends)):
                break
        held.write((yield from self._reader.take("]")))
        yield from self._reader.take_run(SPACE, held.write)
        held.write((yield from self._reader.take(*self._format.ends)))
        if not has_content:
            held.drop()

    def _skip_call(self, held: HeldText) -> Steps[bool]:
        """Take the rest of a call of an unknown function as content; return False if it is no call.

        Its name is already consumed.
        """
        if not (yield from self._reader.take("(")):
            return False
        held.write("(")
        held.release()
        return (
            yield from read_value(
                self._reader, self._answer.content, self._format.begins + self._format.ends, PYTHON_REST, depth=1
            )
        )

    def _read_call(self, held: HeldText) -> Steps[bool]:
        """Read one call; return False if it is none, of an unknown function, or cut."""
        parts: list[str] = []
        yield from self._reader.take_run(NAME_CHARACTERS, parts.append)
        name = "".join(parts)
        held.write(name)
        if name not in self._answer.names:
            return False
        parenthesis = yield from self._reader.take("(")
        if not parenthesis:
            return False
        held.drop()
        self._answer.start(name)
        yield from self._read_arguments()
        return not self._answer.is_open

    def _read_arguments(self) -> Steps[None]:
        """Read `key=value` pairs up to the closing parenthesis or the end marker.

        At the end of the text the call stays open.
        """
        writer = ObjectWriter(self._answer)
        while True:
            yield from self._reader.take_run(SPACE + ",", lambda text: None)
            if (yield from self._reader.take(")")) or (yield from self._reader.see(*self._format.ends)):
                writer.end()
                return
            if not (yield from self._reader.peek()):
                return
            yield from self._read_argument(writer)

    def _read_argument(self, writer: ObjectWriter) -> Steps[None]:
        """Read one pair. An argument without a key is sent as it is."""
        key: list[str] = []
        yield from self._reader.take_run(NAME_CHARACTERS, key.append)
        yield from self._reader.skip_space()
        value: list[str] = []
        if not key or not (yield from self._reader.take("=")):
            writer.raw("".join(key))
            yield from read_value(self._reader, value.append, self._format.ends, PYTHON)
            if not value:
                value.append((yield from self._reader.take("]", "}")))
            writer.raw("".join(value))
            return
        yield from self._reader.skip_space()
        writer.member("".join(key))
        yield from read_value(self._reader, value.append, self._format.ends, PYTHON)
        text = "".join(value).strip()
        if (yield from self._reader.peek()):
            writer.raw(literal_to_json(text) or quote(text))
        else:
            writer.raw(_cut_value(text))


def _cut_value(text: str) -> str:
    """Return a value that the end of the answer has cut: a string as the beginning of JSON, anything else as it is."""
    if text[:1] in ("'", '"'):
        return quote(text[1:])[:-1]
    return text
