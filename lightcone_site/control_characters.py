"""Makes text harmless where it is shown in lines: nothing in it can break one, or move a terminal's cursor."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escape_controls(text: str) -> str:
    r"""Write line breaks, escape codes and the like as \n, \x1b, \u2028."""
    return CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
