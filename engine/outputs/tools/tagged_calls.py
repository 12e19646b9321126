"""Calls written as tags, one per parameter: Qwen3-Coder, Seed-OSS, MiniMax M2, DeepSeek V3.2, GLM, Step-3.

Values are plain text and become JSON by the declared type of their parameter. Strings are sent as they arrive, other
values when they are complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.request import Tool
from engine.outputs.tools.object_writer import ObjectWriter
from engine.outputs.tools.parameters import STRING, ParameterTypes, text_to_json
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import HeldText, ScriptedParser
from engine.outputs.tools.values import read_value


@dataclass(frozen=True, slots=True)
class TaggedCallFormat:
    """The tags of one family.

    A call is `call_begin` NAME `name_end` … `call_end`, a parameter `key_begin` KEY `key_end` (then `value_begin`)
    VALUE `value_end`. Names and keys may be quoted and followed by attributes.
    """

    block_begin: str
    block_end: str
    call_begin: str
    name_end: str
    call_end: str
    key_begin: str
    key_end: str
    value_end: str
    value_begin: str = ""
    name_stops: tuple[str, ...] = ()
    """Further tags that end a name."""
    has_headings: bool = False
    """Each call may have a heading before `call_begin`."""
    is_block_optional: bool = False
    """Calls may also occur without a block."""
    strips_lines: bool = False
    """A value is on lines of its own: drop one line break at either end."""
    controls: frozenset[str] = frozenset()
    """Further special tokens that reach the parser as text."""


class TaggedCallParser(ScriptedParser):
    """A parser that takes text as content up to a block, then reads calls."""

    def __init__(self, names: frozenset[str], tools: tuple[Tool, ...], tags: TaggedCallFormat) -> None:
        super().__init__(names, tags.controls | {tags.block_begin, tags.block_end})
        self._tags = tags
        self._tools = {tool.name: tool for tool in tools}

    def _run(self) -> Steps[None]:
        tags = self._tags
        begins = (tags.block_begin, tags.call_begin) if tags.is_block_optional else (tags.block_begin,)
        while marker := (yield from self._reader.until(begins, self._answer.content)):
            held = HeldText(self._answer, marker)
            yield from self._read_block(held, is_in_call=marker == tags.call_begin)
            held.release()

    def _read_block(self, held: HeldText, is_in_call: bool) -> Steps[None]:
        """Read calls up to the end of the block, or up to text that is no call.

        If a call is content, so are the markers around it.
        """
        has_called = has_content = False
        while True:
            if not is_in_call:
                yield from self._reader.take_run(SPACE, held.write)
                marker = yield from self._take_marker(held)
                held.write(marker)
                if marker == self._tags.block_end and has_called and not has_content:
                    held.drop()
                if marker != self._tags.call_begin:
                    return
            is_in_call = False
            end = yield from self._read_call(held)
            if end:
                has_called = True
            elif not self._answer.is_open:
                has_content = True
                end = yield from self._skip_call(held)
            if end != self._tags.call_end:
                return

    def _skip_call(self, held: HeldText) -> Steps[str]:
        """Take the rest of a call of an unknown function as content; return the tag that ended it, or ""."""
        held.release()
        end = yield from self._reader.until(
            (self._tags.call_end, self._tags.block_end, self._tags.block_begin), self._answer.content
        )
        if end == self._tags.block_begin:
            self._reader.give_back(end)
            return ""
        self._answer.content(end)
        return end

    def _take_marker(self, held: HeldText) -> Steps[str]:
        """Consume the begin of a call or the end of the block if it comes next, after a heading where there are any."""
        markers = (self._tags.call_begin, self._tags.block_end)
        if self._tags.has_headings:
            return (yield from self._reader.until(markers, held.write))
        return (yield from self._reader.take(*markers))

    def _read_call(self, held: HeldText) -> Steps[str]:
        """Read one call after its begin; return the tag that ended it, "" if it is no call, unknown, or cut."""
        tags = self._tags
        header: list[str] = []
        yield from self._reader.take_run(SPACE, held.write)
        stop = yield from self._reader.until((tags.name_end, *tags.name_stops), header.append)
        held.write("".join(header) + stop)
        name = _attribute("".join(header))
        if not stop or name not in self._answer.names:
            return ""
        held.drop()
        self._answer.start(name)
        return (yield from self._read_parameters(name, stop))

    def _read_parameters(self, name: str, stop: str) -> Steps[str]:
        """Read parameters up to the end of the call.

        Text between them is dropped. A lone JSON object is the arguments.
        """
        tags = self._tags
        types, writer = ParameterTypes(self._tools[name]), ObjectWriter(self._answer)
        ends = (tags.call_end, tags.block_end)
        yield from self._reader.skip_space()
        if stop == tags.name_end and (yield from self._reader.see("{")):
            yield from read_value(self._reader, self._answer.arguments, ends)
        tag = stop
        while tag not in ends:
            if tag == tags.key_begin:
                tag = yield from self._read_parameter(types, writer)
            else:
                tag = yield from self._reader.until((tags.key_begin, *ends), lambda text: None)
            if not tag:
                return ""
        writer.end()
        return tag

    def _read_parameter(self, types: ParameterTypes, writer: ObjectWriter) -> Steps[str]:
        """Read one parameter. Return the tag that ended its value.

        " " stands for its own tag, "" for the end of the text.
        """
        tags = self._tags
        header: list[str] = []
        if not (yield from self._reader.until((tags.key_end,), header.append)):
            return ""
        if tags.value_begin:
            yield from self._reader.skip_space()
            yield from self._reader.take(tags.value_begin)
        key, attributes = _attribute("".join(header)), "".join(header)
        declared = STRING if 'string="true"' in attributes else types.types_of(key)
        if 'string="false"' in attributes and declared == STRING:
            declared = frozenset({"number", "boolean", "object", "array", "null"})
        writer.member(key)
        value = _StringValue(writer, tags.strips_lines) if declared == STRING else _TypedValue(writer, declared)
        ends = tuple(dict.fromkeys((tags.value_end, tags.key_begin, tags.call_end, tags.block_end)))
        end = yield from self._reader.until(ends, value.write)
        value.close(is_whole=bool(end))
        return " " if end == tags.value_end else end


class _StringValue:
    """A string that is sent as it arrives, without one line break at either end if the format adds them."""

    def __init__(self, writer: ObjectWriter, strips_lines: bool) -> None:
        self._writer = writer
        self._strips_lines = strips_lines
        self._is_begun = False
        self._held = ""
        writer.open_string()

    def write(self, text: str) -> None:
        if self._strips_lines and not self._is_begun:
            text = text.removeprefix("\n")
        self._is_begun = True
        text = self._held + text
        self._held = "\n" if self._strips_lines and text.endswith("\n") else ""
        self._writer.string(text.removesuffix(self._held))

    def close(self, is_whole: bool) -> None:
        if is_whole:
            self._writer.close_string()


class _TypedValue:
    """A value of another type, converted when it is complete; one that is cut is sent as it is."""

    def __init__(self, writer: ObjectWriter, types: frozenset[str]) -> None:
        self._writer = writer
        self._types = types
        self._parts: list[str] = []

    def write(self, text: str) -> None:
        self._parts.append(text)

    def close(self, is_whole: bool) -> None:
        text = "".join(self._parts).strip()
        self._writer.raw(text_to_json(text, self._types) if is_whole else text)


def _attribute(header: str) -> str:
    """Return the name in `NAME`, `"NAME"` or `"NAME" other="…"`."""
    header = header.strip()
    quote = header[:1]
    return header[1:].partition(quote)[0] if quote in ("'", '"') else header
