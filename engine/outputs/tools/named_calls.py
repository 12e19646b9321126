"""Calls written as a name between markers, then raw JSON arguments: the common part of DeepSeek V3 and Kimi K2."""

from __future__ import annotations

from dataclasses import dataclass

from engine.outputs.tools.reader import SPACE, Steps, both
from engine.outputs.tools.scripted import HeldText, ScriptedParser, read_rest
from engine.outputs.tools.values import read_value


@dataclass(frozen=True, slots=True)
class NamedCallFormat:
    """Markers around all calls and around each; `separator` stands before the name's arguments, or before the name.

    `section_variants`: other spellings of the markers of the section, (begin, end), which a vocabulary may lack.
    """

    section_begin: str
    section_end: str
    call_begin: str
    separator: str
    call_end: str
    section_variants: tuple[tuple[str, str], ...] = ()

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
    """Subclasses read what stands between the begin marker of a call and its arguments."""

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
        """Calls up to the end of the section, or up to what is none."""
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
        """One call, its begin marker consumed; False: it is none, or of an unknown function."""
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
        """White space, where a subclass does not know more."""
        yield from self._reader.skip_space()

    def _read_header(self, held: HeldText) -> Steps[tuple[str, str]]:
        """The function's name, "" if there is none, and the id that the model gave the call, or ""."""
        raise NotImplementedError

    def _read_until(self, separator: str, held: HeldText) -> Steps[str]:
        """The text before the separator, "" where another marker or the end comes first."""
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
    """The separator stands between the word `function` and the name, which ends with its line."""

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
    """The name stands before the separator, the arguments after it."""

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
    """The id is taken over where it has the whole form."""

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
