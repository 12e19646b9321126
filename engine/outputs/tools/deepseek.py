"""DeepSeek V3, R1 and V3.1: a name and JSON arguments between special tokens; V3 fences the arguments as a Markdown code block.

V3:    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME⏎```json⏎{…}⏎```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
V3.1:  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

from engine.outputs.tools.named_calls import NamedCallFormat, NamedCallParser
from engine.outputs.tools.reader import Steps
from engine.outputs.tools.scripted import Held

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

    def _read_header(self, held: Held) -> Steps[tuple[str, str]]:
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

    def _read_header(self, held: Held) -> Steps[tuple[str, str]]:
        name = yield from self._read_until(self._format.separator, held)
        return name.strip(), ""
