"""Calls written as JSON objects: `{"name": …, "arguments": {…}}`, with keys in any order.

Objects are single or in a list, with or without markers. Arguments are passed on exactly as the model writes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.outputs.tools.reader import SPACE, Reader, Steps
from engine.outputs.tools.scripted import HeldText, PieceCollector, ScriptedParser, read_rest
from engine.outputs.tools.values import read_string, read_value

ARGUMENT_KEYS = ("arguments", "parameters")
SIDE_KEYS = ("type", "id")
"""Keys that an object without a marker may have besides name and arguments and still be a call."""
WRAPPER_KEY = "function"
"""The key of an inner object with name and arguments, as requests write calls."""


@dataclass(frozen=True, slots=True)
class JsonCallFormat:
    """The differences between families that write calls as JSON objects."""

    begins: tuple[str, ...] = ()
    """Markers before an object or a list of objects."""
    ends: tuple[str, ...] = ()
    """Markers after it."""
    is_bare: bool = False
    """The answer may also begin with an object or a list, without a marker."""
    is_inline: bool = False
    """Objects may occur anywhere in the text."""
    name_key: str = "name"
    """The key of the function's name. "": the key itself is the name, and its value the arguments."""
    openers: tuple[str, ...] = ()
    """Texts that may follow a begin marker."""
    dropped: tuple[str, ...] = ()
    """Markers around plain text, removed."""
    has_doubled_braces: bool = False
    """`{{` may stand for `{`, as some templates show it."""

    @property
    def markers(self) -> frozenset[str]:
        return frozenset(marker.strip() for marker in self.begins + self.openers + self.ends + self.dropped)


class JsonObjectCall:
    """A reader of one object, from its `{` on, into `answer`.

    Until the name is read, all text is kept in `held`, and arguments that precede the name wait. A marker of the format
    cuts an object that does not close. With `loose_names`, an object is a call only if it names one of these functions
    and has arguments; the call then starts at the key of the arguments.
    """

    def __init__(
        self,
        reader: Reader,
        answer: PieceCollector,
        held: HeldText,
        call_format: JsonCallFormat,
        loose_names: frozenset[str] | None = None,
    ) -> None:
        self._reader = reader
        self._answer = answer
        self._held = held
        self._name_key = call_format.name_key
        self._begins = call_format.begins
        self._ends = call_format.ends
        self._has_doubled_braces = call_format.has_doubled_braces
        self._names = answer.names if loose_names is None else loose_names
        self._needs_arguments = loose_names is not None
        self._loose_name: str | None = None
        self._is_doubled = False
        self._is_committed = False
        self._depth = 0
        self._has_arguments = False
        self._early_arguments: list[str] = []
        self._gap: list[str] = []

    def read(self, is_marked: bool) -> Steps[bool]:
        """Read the object; return False if it is content: no call, or a call of an unknown function."""
        if (yield from self._read_object(is_marked)):
            return self._finish()
        if self._is_committed:
            yield from self._read_rest()
            return True
        self._held.release()
        if is_marked:
            yield from read_value(self._reader, self._answer.content, self._begins + self._ends, depth=self._depth)
        return False

    def _read_object(self, is_marked: bool) -> Steps[bool]:
        """Read up to the closing bracket; return False if it is malformed or names an unknown function."""
        self._keep((yield from self._reader.take("{")))
        if self._has_doubled_braces and self._depth == 0 and (yield from self._take("{")):
            self._is_doubled = True
        self._depth += 1
        is_good = True
        while is_good:
            yield from self._reader.take_run(SPACE, self._keep)
            if (yield from self._take("}")):
                self._depth -= 1
                return True
            is_good = (yield from self._read_member(is_marked)) and (yield from self._read_separator())
        return False

    def _finish(self) -> bool:
        if self._is_committed:
            self._answer.end()
        else:
            self._held.release()
        return self._is_committed

    def _read_rest(self) -> Steps[None]:
        """Take everything up to the end marker of a malformed object as arguments."""
        yield from read_rest(self._reader, self._answer, self._ends, "".join(self._gap))

    def _read_separator(self) -> Steps[bool]:
        self._gap.clear()
        yield from self._reader.take_run(SPACE, self._gap.append)
        self._keep("".join(self._gap))
        is_good = (yield from self._take(",")) or (yield from self._reader.see("}"))
        return bool(is_good)

    def _read_member(self, is_marked: bool) -> Steps[bool]:
        """Read one key and its value; return False if they are malformed or name an unknown function."""
        parts: list[str] = []
        if not (yield from self._reader.see('"')) or not (
            yield from read_string(self._reader, parts.append, self._keep)
        ):
            return False
        yield from self._reader.take_run(SPACE, self._keep)
        if not (yield from self._take(":")):
            return False
        yield from self._reader.take_run(SPACE, self._keep)
        key = "".join(parts)
        if not self._is_committed and key == self._name_key:
            return (yield from self._read_name())
        if not self._is_committed and not self._name_key:
            return self._commit(key) and (yield from self._read_arguments())
        if key in ARGUMENT_KEYS and not self._has_arguments:
            if self._loose_name is not None:
                self._start(self._loose_name)
            return (yield from self._read_arguments())
        if key == WRAPPER_KEY and self._depth == 1 and not self._is_committed and (yield from self._reader.see("{")):
            return (yield from self._read_object(is_marked))
        if not is_marked and not self._is_committed and key not in SIDE_KEYS:
            return False
        return (yield from read_value(self._reader, self._keep, self._ends))

    def _read_name(self) -> Steps[bool]:
        parts: list[str] = []
        if not (yield from self._reader.see('"')) or not (
            yield from read_string(self._reader, parts.append, self._keep)
        ):
            return False
        return self._commit("".join(parts))

    def _commit(self, name: str) -> bool:
        if name not in self._names:
            return False
        if self._needs_arguments and not self._has_arguments:
            self._loose_name = name
        else:
            self._start(name)
        return True

    def _start(self, name: str) -> None:
        self._loose_name = None
        self._is_committed = True
        self._held.drop()
        self._answer.start(name)
        self._answer.arguments("".join(self._early_arguments))

    def _read_arguments(self) -> Steps[bool]:
        """Read the value as it is written. A string is unquoted to the JSON in it; null means no arguments."""
        if (yield from self._take("null")):
            return True
        self._has_arguments = True
        if (yield from self._reader.see('"')):
            return (yield from read_string(self._reader, self._write_arguments, self._keep))
        is_doubled = self._is_doubled and (yield from self._reader.see("{{"))
        if is_doubled:
            yield from self._take("{")
        is_whole = yield from read_value(self._reader, self._write_raw_arguments, self._ends)
        if is_doubled and is_whole:
            yield from self._take("}")
        return is_whole

    def _write_arguments(self, text: str) -> None:
        if self._is_committed:
            self._answer.arguments(text)
        else:
            self._early_arguments.append(text)

    def _write_raw_arguments(self, text: str) -> None:
        self._write_arguments(text)
        self._keep(text)

    def _take(self, literal: str) -> Steps[bool]:
        taken = yield from self._reader.take(literal)
        self._keep(taken)
        return bool(taken)

    def _keep(self, text: str) -> None:
        if not self._is_committed:
            self._held.write(text)


class JsonCallParser(ScriptedParser):
    """A parser that takes text as content up to a begin marker, then reads objects, single or in a list."""

    def __init__(self, names: frozenset[str], call_format: JsonCallFormat) -> None:
        super().__init__(names, call_format.markers)
        self._format = call_format

    def _run(self) -> Steps[None]:
        if self._format.is_bare:
            yield from self._read_block(HeldText(self._answer), is_marked=False)
        stops = self._format.begins + self._format.dropped + (("{",) if self._format.is_inline else ())
        while marker := (yield from self._reader.until(stops, self._answer.content)):
            if marker in self._format.dropped:
                yield from self._reader.skip_space()
            elif marker == "{":
                self._reader.give_back(marker)
                yield from self._read_block(HeldText(self._answer), is_marked=False)
            else:
                yield from self._read_block(HeldText(self._answer, marker))

    def _read_block(
        self, held: HeldText, is_marked: bool = True, loose_names: frozenset[str] | None = None
    ) -> Steps[bool]:
        """Read objects, separators and the end marker; return True if any object was a call.

        If an object is content, so are the separators and markers around it. `loose_names`: only calls of these
        functions count, and only with arguments.
        """
        yield from self._take_opening(held)
        has_called = has_content = False
        if not is_marked and (yield from self._reader.peek()) != "{":
            held.release()  # the next text may be a begin marker, even if it equals an end marker
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

    def _take_opening(self, held: HeldText) -> Steps[None]:
        for literals in (self._format.openers, ("[",)):
            yield from self._reader.take_run(SPACE, held.write)
            held.write((yield from self._reader.take(*literals)))
        yield from self._reader.take_run(SPACE, held.write)
