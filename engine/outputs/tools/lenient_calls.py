"""Calls in hermes form as small models write them.

They come in a fence, bare, in another tag, or with the doubled braces of a template.

Within the format's own tags calls are read as usual. Elsewhere an object is a call only if it names a known function
and has arguments; anything else is content, unchanged. Functions with a `strict` schema can be called only within the
tags, because the grammar enforces the schema only there.
"""

from __future__ import annotations

from engine.outputs.tools.json_calls import JsonCallFormat, JsonCallParser
from engine.outputs.tools.reader import SPACE, Steps
from engine.outputs.tools.scripted import HeldText

FENCE = "```"
LANGUAGES = ("json", "xml", "tool_call")
"""Languages of a fence that may hold calls."""
OTHER_TAGS = ("<function_call>", "<tools>")
"""Tags that models confuse with their own; templates put `<tools>` around the descriptions of the tools."""
LINE_START = "\n{"


class LenientCallParser(JsonCallParser):
    """A parser of such calls. `strict_names`: the functions among `names` that are called within the tags only."""

    def __init__(self, names: frozenset[str], strict_names: frozenset[str], call_format: JsonCallFormat) -> None:
        super().__init__(names, call_format)
        self._loose_names = names - strict_names

    def _run(self) -> Steps[None]:
        yield from self._read_block(HeldText(self._answer), is_marked=False, loose_names=self._loose_names)
        stops = (*self._format.begins, *OTHER_TAGS, FENCE, LINE_START)
        while marker := (yield from self._reader.until(stops, self._answer.content)):
            if marker == FENCE:
                yield from self._read_fence()
            elif marker == LINE_START:
                self._answer.content(marker[0])
                self._reader.give_back(marker[1:])
                yield from self._read_block(HeldText(self._answer), is_marked=False, loose_names=self._loose_names)
            else:
                yield from self._read_tagged(HeldText(self._answer, marker), marker)

    def _read_tagged(self, held: HeldText, tag: str) -> Steps[bool]:
        """Read what follows a tag (or ""); return True if it was calls."""
        if tag in self._format.begins:
            return (yield from self._read_block(held))
        return (yield from self._read_block(held, is_marked=False, loose_names=self._loose_names))

    def _read_fence(self) -> Steps[None]:
        """Read calls up to the closing fence, and drop both fences; a fence with anything else in it is content."""
        held = HeldText(self._answer, FENCE)
        held.write((yield from self._reader.take(*LANGUAGES)))
        if (yield from self._read_entries(held)):
            held.write(closing := (yield from self._reader.take(FENCE)))
            if closing:
                held.drop()
            held.release()
            return
        marker = yield from self._reader.until((FENCE, *self._format.begins), self._answer.content)
        if marker == FENCE:
            self._answer.content(marker)
        else:
            self._reader.give_back(marker)

    def _read_entries(self, held: HeldText) -> Steps[bool]:
        """Read the inside of a fence, tag by tag; return True if it is calls and nothing else."""
        has_called = False
        while True:
            yield from self._reader.take_run(SPACE, held.write)
            held.write(tag := (yield from self._reader.take(*self._format.begins, *OTHER_TAGS)))
            if has_called and not tag:
                return True
            if not (yield from self._read_tagged(held, tag)):
                return False
            has_called = True
