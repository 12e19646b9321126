"""Read the arguments of a call, which are JSON text, for dialects whose calls hold an object."""

from __future__ import annotations

import re
from typing import Any

import orjson

WORDS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>"?)|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
CLOSERS = {"{": "}", "[": "]"}


def input_read(arguments: str) -> dict[str, Any]:
    """Return the object in a JSON text, its complete part if it breaks off; `{"input": …}` for other values and text.

    A value that is nested more deeply than an answer can be written stays text.
    """
    if not arguments.strip():
        return {}
    value = _parsed(arguments)
    if value is None and arguments.lstrip().startswith("{"):
        value = _parsed(complete_part(arguments)) or {}
    if not isinstance(value, dict):
        value = {"input": arguments if value is None else value}
    return value if _is_writable(value) else {"input": arguments}


def complete_part(text: str) -> str:
    """Return a JSON text up to its last complete value, with its open brackets closed. Not recursive."""
    open_brackets: list[str] = []
    end, depth = 0, 0
    expects_name = False
    for match in WORDS.finditer(text):
        word = match.group()
        if word in CLOSERS:
            open_brackets.append(word)
            end, depth = match.end(), len(open_brackets)
            expects_name = word == "{"
        elif word in ("}", "]"):
            if not open_brackets:
                break
            open_brackets.pop()
            end, depth = match.end(), len(open_brackets)
        elif word == ",":
            expects_name = bool(open_brackets) and open_brackets[-1] == "{"
        elif word == ":":
            expects_name = False
        elif word.startswith('"') and not match["end"]:
            break
        elif not expects_name and (match["end"] or match.end() < len(text)):
            end, depth = match.end(), len(open_brackets)
    return text[:end] + "".join(CLOSERS[bracket] for bracket in reversed(open_brackets[:depth]))


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _is_writable(value: dict[str, Any]) -> bool:
    """Return True if an answer can hold the value: the JSON writer goes less deep than the reader."""
    try:
        orjson.dumps({"content": [{"input": value}]})
    except orjson.JSONEncodeError:
        return False
    return True
