"""Ids of tool calls. They follow from the run, so a run that is resumed gives its calls the ids that the client has already seen."""

from __future__ import annotations

import string
from enum import StrEnum
from hashlib import sha256

ALPHANUMERIC = string.digits + string.ascii_letters
MISTRAL_LENGTH = 9


class CallIdStyle(StrEnum):
    """`DEFAULT`: `chatcmpl-tool-` and 32 hexadecimal digits; the templates of Mistral and Kimi K2 want forms of their own."""

    DEFAULT = "default"
    MISTRAL = "mistral"
    KIMI_K2 = "kimi_k2"


def call_id(style: CallIdStyle, run_id: str, choice: int, index: int, name: str) -> str:
    """The id of call number `index` of a choice."""
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
