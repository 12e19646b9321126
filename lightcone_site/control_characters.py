"""Text shown as one line: it cannot break the line or move the cursor of a terminal. Standard library only."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def escape_controls(text: str) -> str:
    r"""Replace line breaks, escape codes and other control characters by \n, \x1b, \u2028."""
    return CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
