"""Errors as OpenAI's clients and ours read them: `{"error": {...}, "message": ...}`."""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError


def error_body(error: ApiError) -> dict[str, Any]:
    """The JSON body of a failed request. The root-level message is what the TypeScript client shows."""
    return {"error": error.described(), "message": error.message}
