"""Read a request body as strict JSON (RFC 8259), bounded before anything is built.

Refused are NaN and Infinity, numbers that overflow, invalid UTF-8, lone surrogates, deep nesting, over-long numbers,
too many values, and any top level that is not an object. A byte order mark is skipped. The last of duplicate keys wins.

NOTE: the process answers other requests meanwhile, so no single call that holds the interpreter may take long. The scan
goes piece by piece, in calls of C. The number of values bounds the parsing, and one large body is parsed at a time.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings

from chat.errors import ApiError

BOM = b"\xef\xbb\xbf"
PIECE_BYTES = 64 * 1024
LARGE_BYTES = 64 * 1024
STRUCTURE = b",:[]{}"
OTHER_BYTES = bytes(byte for byte in range(256) if byte not in STRUCTURE)
LISTS_ONLY = bytes.maketrans(b"{}", b"[]")
BACKSLASHES = re.compile(rb"\\*")

_large = threading.Lock()


@dataclass(slots=True)
class JsonBounds:
    """Bounds on levels of nesting, digits of a number, and values. All texts that are read under one object share its
    values.

    A list or an object counts as four values, the name of a member as two, by their cost. The default admits a list of
    262,144 ids with a conversation beside it, or 40,000 messages: 20 ms of the interpreter, 60 if all of it is names.
    """

    depth: int
    digits: int
    values: int


def json_bounds(*, more_depth: int = 0) -> JsonBounds:
    """Return the bounds of a new request, from the settings."""
    limits = settings.LIGHTCONE_LIMITS
    return JsonBounds(limits.max_json_depth + more_depth, limits.max_json_digits, limits.max_json_values)


def json_object_read(body: bytes, bounds: JsonBounds | None = None) -> dict[str, Any]:
    """Return the object in `body`; by default within the bounds of a request. Raises what `json_read` raises."""
    body = body.removeprefix(BOM)
    if not body or body.isspace():
        raise ApiError("invalid_json", "The request body is empty; send a JSON object.")
    value = json_read(body, bounds or json_bounds())
    if not isinstance(value, dict):
        raise ApiError("invalid_json", "The request body must be a JSON object.")
    return value


def json_read(text: bytes, bounds: JsonBounds) -> Any:
    """Return the value in `text`, of any kind. Raises ApiError `invalid_json` or `request_too_large`."""
    _check_bounds(text, bounds)
    try:
        with _parsing_large() if len(text) > LARGE_BYTES else nullcontext():
            return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ApiError("invalid_json", f"The request body is not valid JSON: {str(error)[:200]}.") from None


@contextmanager
def _parsing_large() -> Iterator[None]:
    """Parse one large body at a time, without the garbage collector, which would look at all new values repeatedly.

    Afterwards leave the interpreter to others for as long as it took.
    """
    with _large:
        started = time.perf_counter()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            time.sleep(time.perf_counter() - started)


def _check_bounds(body: bytes, bounds: JsonBounds) -> None:
    """Count nesting, digits and values, right up to the first fault of a text that is not JSON."""
    # NOTE: the pattern is tried where a number begins, not at each digit: a body of long numbers would hold a thread
    # for long.
    long_number = re.compile(rb"(?<![-+.0-9eE])[-+.eE]*+(?:[0-9][-+.eE]*+){%d}" % (bounds.digits + 1))
    brackets, tail = [], b""
    for text in _outside_strings(body):
        structure = text.translate(LISTS_ONLY, OTHER_BYTES)
        bounds.values -= 2 * len(structure) - structure.count(b",")
        if bounds.values < 0:
            limit = settings.LIGHTCONE_LIMITS.max_json_values
            message = f"more than {limit} JSON values (a list or an object counts as four, a name as two)"
            raise ApiError("request_too_large", f"The request body has {message}; send less of them in one request.")
        text = tail + text
        if long_number.search(text):
            raise ApiError("invalid_json", f"A number in the request body has more than {bounds.digits} digits.")
        brackets.append(structure.translate(None, b",:"))
        tail = text[-(bounds.digits + 8) :]  # a number may go on in the next piece
    if _is_deeper(b"".join(brackets), bounds.depth):
        message = f"The request body is nested too deeply; at most {bounds.depth} levels are allowed."
        raise ApiError("invalid_json", message)


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """Yield the text piece by piece, with a quote in place of each string."""
    start, is_inside = 0, False
    while start < len(body):
        end = start + PIECE_BYTES
        if body[end - 1 : end] == b"\\":  # no escape is cut in two
            end = BACKSLASHES.match(body, end).end() + 1  # type: ignore[union-attr]  # matches anywhere
        parts = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b'"'.join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        start = end


def _is_deeper(brackets: bytes, depth: int) -> bool:
    """Return True if lists are nested deeper. Each round removes the innermost ones."""
    for num_removed in range(depth):
        if len(brackets) <= depth - num_removed:
            return False
        inner, brackets = brackets, brackets.replace(b"[]", b"")
        if len(brackets) == len(inner):
            break
    return brackets.count(b"[") > depth or b"[]" in brackets
