"""Calls written as Python: `[f(a=1, b="x"), g()]`, or a call a line. Arguments are literals, read without evaluating anything.

An argument goes out as JSON when it is complete. What is no literal becomes a string of its text.
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
    """`begins`, `ends`: markers around the calls. `is_bare`: the answer may also begin with the list, without a marker.

    `needs_list`: calls stand in brackets.
    """

    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    is_bare: bool = False
    needs_list: bool = True


class PythonCallParser(ScriptedParser):
    """Content up to a begin marker; after it calls."""

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
        """Calls, what separates them, and the end marker, up to what is no call. Beside a call that is content these are content too."""
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
        """What is left of a call of an unknown function, whose name is consumed, is content."""
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
        """One call; False: it is none, or of an unknown function."""
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
        """`key=value` pairs up to the closing parenthesis, the end marker, or the end of the text, where the call stays open."""
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
        """One pair; what has no key is passed on as it is."""
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
    """What is there of a value that the end of the answer has cut: the beginning of a string as JSON, anything else as it is."""
    if text[:1] in ("'", '"'):
        return quote(text[1:])[:-1]
    return text
