"""The door of every dialect of OpenAI's shape: where the key is, and how errors look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.errors import ApiError


class OpenAIDoor:
    key_header = "authorization"
    header_limits: Mapping[str, int] = {}

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """The root-level message is what the TypeScript client shows."""
        return {"error": error.described(), "message": error.message}
