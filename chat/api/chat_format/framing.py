"""What surrounds the chunks of a stream: how it ends, and how it says that it cannot go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chat.api.sse import DONE, data_frame
from chat.errors import ApiError


@dataclass(frozen=True, slots=True)
class Framing:
    """`end`: the last frame, also after an error; `error`: the frame of an error, without the end."""

    end: bytes
    error: Callable[[ApiError], bytes]


def _error_frame(error: ApiError) -> bytes:
    body: dict[str, Any] = {"error": error.described()}
    return data_frame(json.dumps(body))


def _named_error_frame(error: ApiError) -> bytes:
    body = {"error": error.described(), "message": error.message, "detail": error.message}
    return b"event: error\n" + data_frame(json.dumps(body))


PLAIN = Framing(DONE, _error_frame)
"""No event names, as OpenAI's clients want it."""

NAMED = Framing(b"event: done\n" + DONE, _named_error_frame)
"""Events with names for the end and for errors, as Scale's clients take each frame without a name for JSON of a chunk."""
