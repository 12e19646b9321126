"""Read a request body as strict JSON: what RFC 8259 allows and nothing more, bounded before anything recurses.

Refused: NaN and Infinity, numbers that overflow, invalid UTF-8, lone surrogates, deep nesting, over-long numbers, and any
top level that is not an object. A byte order mark is skipped; of duplicate keys the last wins. Called by `dialects/body.py`, and
by messages.py for JSON inside strings.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from chat.errors import ApiError

BOM = b"\xef\xbb\xbf"
TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]|[-+0-9][-+.0-9eE]*+', re.DOTALL)
"""Strings (also unterminated ones, so that the scan stays linear), brackets and numbers."""


def json_object_read(body: bytes, *, max_depth: int, max_digits: int) -> dict[str, Any]:
    """The object in `body`; raises ApiError `invalid_json`."""
    body = body.removeprefix(BOM)
    if not body.strip():
        raise ApiError("invalid_json", "The request body is empty; send a JSON object.")
    value = json_read(body, max_depth=max_depth, max_digits=max_digits)
    if not isinstance(value, dict):
        raise ApiError("invalid_json", "The request body must be a JSON object.")
    return value


def json_read(text: bytes, *, max_depth: int, max_digits: int) -> Any:
    """The value in `text`, of any kind; raises ApiError `invalid_json`."""
    _check_bounds(text, max_depth, max_digits)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ApiError("invalid_json", f"The request body is not valid JSON: {str(error)[:200]}.") from None


def _check_bounds(body: bytes, max_depth: int, max_digits: int) -> None:
    """Check nesting and length of numbers without recursion. Most bodies pass by two counts alone."""
    has_long_number = re.search(rb"[-+.0-9eE]{%d}" % (max_digits + 1), body) is not None
    if body.count(b"[") + body.count(b"{") <= max_depth and not has_long_number:
        return
    depth = 0
    for match in TOKENS.finditer(body):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            if depth > max_depth:
                raise ApiError("invalid_json", f"The request body is nested too deeply; at most {max_depth} levels are allowed.")
        elif token in (b"]", b"}"):
            depth -= 1
        elif token[0] != 0x22 and sum(48 <= byte <= 57 for byte in token) > max_digits:
            raise ApiError("invalid_json", f"A number in the request body has more than {max_digits} digits.")
