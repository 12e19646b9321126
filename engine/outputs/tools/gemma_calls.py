"""Calls of FunctionGemma and Gemma 4: `call:NAME{key:value, …}` between special tokens; strings have delimiter tokens.

FunctionGemma   <start_function_call>call:NAME{k:<escape>v<escape>,n:5}<end_function_call>
Gemma 4         <|tool_call>call:NAME{k:<|"|>v<|"|>,n:5}<tool_call|>
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.request import Tool
from engine.outputs.tools.object_writer import ObjectWriter
from engine.outputs.tools.parameters import STRING, ParameterTypes, quote, text_to_json
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import HeldText, ScriptedParser
from engine.outputs.tools.values import Syntax, read_value

SCALARS = frozenset({"number", "boolean", "null", "string"})
PLAIN = Syntax(quotes="", opens="", closes="", stops=",}]")


@dataclass(frozen=True, slots=True)
class GemmaCallFormat:
    """The special tokens of one generation."""

    begin: str
    end: str
    delimiter: str


FUNCTION_GEMMA = GemmaCallFormat("<start_function_call>", "<end_function_call>", "<escape>")
GEMMA_4 = GemmaCallFormat("<|tool_call>", "<tool_call|>", '<|"|>')


class GemmaCallParser(ScriptedParser):
    """A parser of these calls that sends each member of the arguments as it is read."""

    def __init__(self, names: frozenset[str], tools: tuple[Tool, ...], call_format: GemmaCallFormat) -> None:
        super().__init__(names, frozenset((call_format.begin, call_format.end, call_format.delimiter)))
        self._format = call_format
        self._tools = {tool.name: tool for tool in tools}

    def _run(self) -> Steps[None]:
        while marker := (yield from self._reader.until((self._format.begin,), self._answer.content)):
            held = HeldText(self._answer, marker)
            yield from self._read_call(held)
            held.release()

    def _read_call(self, held: HeldText) -> Steps[None]:
        yield from self._reader.take_run(SPACE, held.write)
        held.write((yield from self._reader.take("call:")))
        header: list[str] = []
        stop = yield from self._reader.until(("{", self._format.end), header.append)
        held.write("".join(header) + stop)
        name = "".join(header).strip()
        if not stop or name not in self._answer.names:
            return
        held.drop()
        self._answer.start(name)
        if stop == "{":
            yield from self._read_members(ParameterTypes(self._tools[name]))
            yield from self._reader.skip_space()
            yield from self._reader.take(self._format.end)
        else:
            self._answer.end()

    def _read_members(self, types: ParameterTypes) -> Steps[None]:
        """Read `key:value` pairs up to the closing brace or the end marker.

        At the end of the text the call stays open.
        """
        writer = ObjectWriter(self._answer)
        while True:
            yield from self._reader.take_run(SPACE + ",", lambda text: None)
            if (yield from self._reader.take("}")) or (yield from self._reader.see(self._format.end)):
                writer.end()
                return
            key = yield from self._read_key()
            if not key:
                return
            writer.member(key)
            if types.types_of(key) != STRING and (yield from self._reader.take(self._format.delimiter)):
                yield from self._read_typed(writer, types.types_of(key))
            else:
                yield from self._read_value(writer)

    def _read_typed(self, writer: ObjectWriter, types: frozenset[str]) -> Steps[None]:
        """Convert a delimited value whose parameter is not declared a string; one that is cut is sent as it is."""
        parts: list[str] = []
        is_whole = yield from self._reader.until((self._format.delimiter,), parts.append)
        writer.raw(text_to_json("".join(parts), types) if is_whole else "".join(parts))

    def _read_key(self) -> Steps[str]:
        """Read a key up to its colon, with or without delimiters; "" if the text ends first."""
        key: list[str] = []
        yield from self._reader.take(self._format.delimiter)
        stop = yield from self._reader.until((self._format.delimiter, ":"), key.append)
        if stop == self._format.delimiter:
            stop = yield from self._reader.until((":",), lambda text: None)
        return "".join(key).strip() if stop else ""

    def _read_value(self, writer: ObjectWriter) -> Steps[None]:
        """Turn one value into JSON, bracket by bracket. `closers` are the brackets that must still close."""
        closers: list[str] = []
        while True:
            yield from self._reader.skip_space()
            opening = yield from self._reader.take("{", "[")
            if opening:
                closers.append("}" if opening == "{" else "]")
                writer.raw(opening)
            else:
                yield from self._read_scalar(writer)
            is_first = bool(opening)
            while closers:
                yield from self._reader.take_run(SPACE + ",", lambda text: None)
                if not (yield from self._reader.take(closers[-1])):
                    break
                writer.raw(closers.pop())
                is_first = False
            if not closers or not (yield from self._reader.peek()) or (yield from self._reader.see(self._format.end)):
                return
            writer.raw("" if is_first else ", ")
            if closers[-1] == "}":
                writer.raw(quote((yield from self._read_key())) + ": ")

    def _read_scalar(self, writer: ObjectWriter) -> Steps[None]:
        """Read a delimited string, sent as it comes, or a number or word."""
        if (yield from self._reader.take(self._format.delimiter)):
            writer.open_string()
            if (yield from self._reader.until((self._format.delimiter,), writer.string)):
                writer.close_string()
            return
        parts: list[str] = []
        yield from read_value(self._reader, parts.append, (self._format.end,), PLAIN)
        if not parts:
            yield from self._reader.take("}", "]", ",")
        writer.raw(text_to_json("".join(parts).strip(), SCALARS))
