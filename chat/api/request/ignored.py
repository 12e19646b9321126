"""The ignored parts of a request: fields that its dialect does not know, and tools that this server cannot run.

The log and a header of the answer name them, as the client cannot see it otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

HEADER = "X-Lightcone-Ignored"
MAX_BYTES = 1_024
MAX_NAMES = 512
"""More than a line can hold, so that a line which leaves some out always says so."""
MAX_NAME_CHARS = 64
PLAIN = "-_.:[]"
"""Characters that stay as they are, beside letters and digits. All others are percent-encoded."""
MORE = ", ..."


def unknown_names(body: Mapping[str, Any], known: Container[str], prefix: str = "") -> tuple[str, ...]:
    """Return the unknown fields of a body, in order, at most `MAX_NAMES`. Null counts as absent."""
    names = (prefix + name for name, value in body.items() if name not in known and value is not None)
    return tuple(islice(names, MAX_NAMES))


def ignored_line(names: Iterable[str]) -> str:
    """Return the names for a header: at most `MAX_BYTES` of plain characters; "" for none."""
    line = ""
    for name in names:
        word = quote(name[:MAX_NAME_CHARS], safe=PLAIN, errors="replace")
        if len(line) + len(word) + len(MORE) + 2 > MAX_BYTES:
            return line + MORE
        line = f"{line}, {word}" if line else word
    return line
