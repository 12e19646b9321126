"""Calls of DeepSeek V3, R1 and V3.1 and of Kimi K2: a name between markers, then JSON arguments.

DeepSeek V3     <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME⏎```json⏎{…}⏎```…
DeepSeek V3.1   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
Kimi K2         <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}…

Some answers of Kimi K2 have the markers of the section in the singular.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.outputs.tools.reader import SPACE, Steps, both
from engine.outputs.tools.scripted import HeldText, ScriptedParser, read_rest
from engine.outputs.tools.values import read_value


@dataclass(frozen=True, slots=True)
class NamedCallFormat:
    """The markers of a family: around the section of calls and around each call."""

    section_begin: str
    section_end: str
    call_begin: str
    separator: str
    """Precedes the arguments, or the name."""
    call_end: str
    section_variants: tuple[tuple[str, str], ...] = ()
    """Other spellings of the section's markers, (begin, end), which a vocabulary may lack."""

    @property
    def section_begins(self) -> tuple[str, ...]:
        return (self.section_begin, *(begin for begin, _ in self.section_variants))

    @property
    def section_ends(self) -> tuple[str, ...]:
        return (self.section_end, *(end for _, end in self.section_variants))

    @property
    def usual_markers(self) -> frozenset[str]:
        return frozenset((self.section_begin, self.section_end, self.call_begin, self.separator, self.call_end))

    @property
    def markers(self) -> frozenset[str]:
        return self.usual_markers.union(self.section_begins, self.section_ends)


class NamedCallParser(ScriptedParser):
    """The shared parser. A subclass reads the text between the begin marker of a call and its arguments."""

    def __init__(self, names: frozenset[str], call_format: NamedCallFormat) -> None:
        super().__init__(names, call_format.markers)
        self._format = call_format

    def _run(self) -> Steps[None]:
        begins = (*self._format.section_begins, self._format.call_begin)
        while marker := (yield from self._reader.until(begins, self._answer.content)):
            held = HeldText(self._answer, marker)
            yield from self._read_calls(held, is_in_call=marker == self._format.call_begin)
            held.release()

    def _read_calls(self, held: HeldText, is_in_call: bool) -> Steps[None]:
        """Read calls up to the end of the section, or up to text that is no call."""
        has_called = False
        while True:
            if not is_in_call:
                yield from self._reader.take_run(SPACE, held.write)
                marker = yield from self._reader.take(self._format.call_begin, *self._format.section_ends)
                held.write(marker)
                if marker != self._format.call_begin:
                    if marker and has_called:
                        held.drop()
                    return
            if not (yield from self._read_call(held)):
                return
            has_called, is_in_call = True, False

    def _read_call(self, held: HeldText) -> Steps[bool]:
        """Read one call after its begin marker; return False if it is none, or of an unknown function."""
        name, call_id = yield from self._read_header(held)
        if name not in self._answer.names:
            return False
        held.drop()
        self._answer.start(name, call_id)
        yield from self._take_fence()
        end = self._format.call_end
        if (yield from self._reader.see("{")) and (yield from read_value(self._reader, self._answer.arguments, (end,))):
            self._answer.end()
            yield from self._take_fence()
            yield from self._reader.take_run(SPACE + "}", held.write)
            held.drop()
            yield from self._reader.take(end)
        else:
            yield from read_rest(self._reader, self._answer, (end,))
        return True

    def _take_fence(self) -> Steps[None]:
        """Skip white space; a subclass may skip more."""
        yield from self._reader.skip_space()

    def _read_header(self, held: HeldText) -> Steps[tuple[str, str]]:
        """Return the function's name and the id that the model gave the call; each may be ""."""
        raise NotImplementedError

    def _read_until(self, separator: str, held: HeldText) -> Steps[str]:
        """Return the text before the separator, "" if another marker or the end comes first."""
        parts: list[str] = []
        stops = (separator, *sorted(self._format.markers - {separator}))
        stop = yield from self._reader.until(stops, both(parts.append, held.write))
        held.write(stop)
        return "".join(parts) if stop == separator else ""


DEEPSEEK = NamedCallFormat(
    section_begin="<｜tool▁calls▁begin｜>",
    section_end="<｜tool▁calls▁end｜>",
    call_begin="<｜tool▁call▁begin｜>",
    separator="<｜tool▁sep｜>",
    call_end="<｜tool▁call▁end｜>",
)
FENCE = "```"


class DeepseekV3Parser(NamedCallParser):
    """The parser of V3 and R1.

    The separator follows the word `function`, the name ends with its line, and a fence follows.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, DEEPSEEK)

    def _read_header(self, held: HeldText) -> Steps[tuple[str, str]]:
        if not (yield from self._read_until(self._format.separator, held)):
            return "", ""
        name = yield from self._read_until("\n", held)
        return name.strip(), ""

    def _take_fence(self) -> Steps[None]:
        yield from self._reader.skip_space()
        if (yield from self._reader.take(FENCE)):
            yield from self._reader.take("json")
            yield from self._reader.skip_space()


class DeepseekV31Parser(NamedCallParser):
    """The parser of V3.1: the name precedes the separator, the arguments follow it."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, DEEPSEEK)

    def _read_header(self, held: HeldText) -> Steps[tuple[str, str]]:
        name = yield from self._read_until(self._format.separator, held)
        return name.strip(), ""


KIMI_K2 = NamedCallFormat(
    section_begin="<|tool_calls_section_begin|>",
    section_end="<|tool_calls_section_end|>",
    call_begin="<|tool_call_begin|>",
    separator="<|tool_call_argument_begin|>",
    call_end="<|tool_call_end|>",
    section_variants=(("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),),
)
PREFIX = "functions."
MAX_DIGITS = 9


class KimiK2Parser(NamedCallParser):
    """The parser of Kimi K2: `functions.NAME:INDEX` is the name and, if complete, the id of the call."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, KIMI_K2)

    def _read_header(self, held: HeldText) -> Steps[tuple[str, str]]:
        header = (yield from self._read_until(self._format.separator, held)).strip()
        name, colon, number = header.removeprefix(PREFIX).rpartition(":")
        if not colon:
            name = number
        is_id = (
            header.startswith(PREFIX)
            and number.isascii()
            and number.isdigit()
            and len(number) <= MAX_DIGITS
            and bool(colon)
        )
        return name, header if is_id else ""
