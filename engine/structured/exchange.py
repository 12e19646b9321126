"""What worker, processes that try constraints and core say to each other of constraints: words, names of backends, payloads.

Apart from what acts on it, as that takes libraries which not all three need.
"""

from __future__ import annotations

import json

PREPARE, COMPILE, CHECK, CHECK_SCHEMAS = "prepare", "compile", "check", "check_schemas"
"""What the process of `trial_task.py` can be asked for."""

LLGUIDANCE, XGRAMMAR = "llguidance", "xgrammar"
"""Backends: the libraries that follow a grammar in the core."""
CONJUNCTION = "conjunction"
"""The backend of two grammars of llguidance at once."""
EBNF = "ebnf"
"""Instead of a backend: a text that xgrammar is to compile in a trial of its own."""


def pack_grammars(grammars: tuple[str, str]) -> bytes:
    """Two grammars of llguidance as one payload."""
    return json.dumps(grammars).encode()


def unpack_grammars(payload: bytes) -> tuple[bytes, bytes]:
    """As they were packed."""
    first, second = json.loads(payload)
    return first.encode(), second.encode()
