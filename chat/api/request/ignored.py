"""What of a request was passed over: fields that its dialect does not know, and tools that nobody here can run.

They are named in the log and in a header of the answer, as who sent them cannot see it otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

HEADER = "X-Lightcone-Ignored"
MAX_BYTES = 1_024
MAX_NAMES = 512
"""More than a line can hold, so that one which leaves some out always says so."""
MAX_NAME_CHARS = 64
PLAIN = "-_.:[]"
"""Characters of names that stay as they are, beside letters and digits; all others are percent-encoded."""
MORE = ", ..."


def unknown_names(body: Mapping[str, Any], known: Container[str], prefix: str = "") -> tuple[str, ...]:
    """The fields of a body that are not known, in order, at most `MAX_NAMES`; null is as good as absent."""
    names = (prefix + name for name, value in body.items() if name not in known and value is not None)
    return tuple(islice(names, MAX_NAMES))


def ignored_line(names: Iterable[str]) -> str:
    """The names for a header: at most `MAX_BYTES` of plain characters; "" for none."""
    line = ""
    for name in names:
        word = quote(name[:MAX_NAME_CHARS], safe=PLAIN, errors="replace")
        if len(line) + len(word) + len(MORE) + 2 > MAX_BYTES:
            return line + MORE
        line = f"{line}, {word}" if line else word
    return line
