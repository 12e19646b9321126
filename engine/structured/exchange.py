"""Names and payloads that worker, core and the killable children exchange about constraints.

Separate from the code that acts on them, as that needs libraries that not all three load.
"""

from __future__ import annotations

import json

PREPARE, COMPILE, CHECK, CHECK_SCHEMAS = "prepare", "compile", "check", "check_schemas"
"""The commands of `child_task.py`."""

LLGUIDANCE, XGRAMMAR = "llguidance", "xgrammar"
"""The libraries that follow a grammar in the core."""
CONJUNCTION = "conjunction"
"""The backend of two llguidance grammars at once."""
EBNF = "ebnf"
"""In place of a backend: a text that xgrammar must compile in a child of its own."""


def pack_grammars(grammars: tuple[str, str]) -> bytes:
    """Pack two grammars of llguidance into one payload."""
    return json.dumps(grammars).encode()


def unpack_grammars(payload: bytes) -> tuple[bytes, bytes]:
    """Return the two grammars of a payload."""
    first, second = json.loads(payload)
    return first.encode(), second.encode()
