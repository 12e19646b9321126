"""Ids of tool calls, derived from the run: a resumed run gives its calls the ids that the client has already seen."""

from __future__ import annotations

import string
from enum import StrEnum
from hashlib import sha256

ALPHANUMERIC = string.digits + string.ascii_letters
MISTRAL_LENGTH = 9


class CallIdStyle(StrEnum):
    """The form of ids that a chat template accepts."""

    DEFAULT = "default"
    """`chatcmpl-tool-` and 32 hexadecimal digits."""
    MISTRAL = "mistral"
    """9 letters and digits."""
    KIMI_K2 = "kimi_k2"
    """`functions.NAME:INDEX`."""


def call_id(style: CallIdStyle, run_id: str, choice: int, index: int, name: str) -> str:
    """Return the id of call number `index` of a choice."""
    if style is CallIdStyle.KIMI_K2:
        return f"functions.{name}:{index}"
    digest = sha256(f"{run_id}/{choice}/{index}".encode()).digest()
    if style is CallIdStyle.DEFAULT:
        return "chatcmpl-tool-" + digest[:16].hex()
    number, characters = int.from_bytes(digest), []
    for _ in range(MISTRAL_LENGTH):
        number, rest = divmod(number, len(ALPHANUMERIC))
        characters.append(ALPHANUMERIC[rest])
    return "".join(characters)
