"""The frames around the chunks of a stream: its end, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chat.api.sse import DONE, data_frame
from chat.errors import ApiError


@dataclass(frozen=True, slots=True)
class Framing:
    """The frames of a dialect: `end` is the last one, also after an error; `error` returns that of an error."""

    end: bytes
    error: Callable[[ApiError], bytes]


def _error_frame(error: ApiError) -> bytes:
    body: dict[str, Any] = {"error": error.described()}
    return data_frame(json.dumps(body))


def _named_error_frame(error: ApiError) -> bytes:
    body = {"error": error.described(), "message": error.message, "detail": error.message}
    return b"event: error\n" + data_frame(json.dumps(body))


PLAIN = Framing(DONE, _error_frame)
"""Frames without event names, as OpenAI's clients want them."""

NAMED = Framing(b"event: done\n" + DONE, _named_error_frame)
"""Named events for the end and for errors. Scale's clients read each frame without a name as the JSON of a chunk."""
