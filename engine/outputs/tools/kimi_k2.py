"""Kimi K2: the model names function and number of the call, `functions.NAME:INDEX`, which is also the call's id.

<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|><|tool_calls_section_end|>

Some answers have the markers of the section in the singular.
"""

from __future__ import annotations

from engine.outputs.tools.named_calls import NamedCallFormat, NamedCallParser
from engine.outputs.tools.reader import Steps
from engine.outputs.tools.scripted import Held

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

    def _read_header(self, held: Held) -> Steps[tuple[str, str]]:
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
