"""Errors as Scale's clients read them: the shape of the Lightcone dialect and `detail` beside it."""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError


def error_body(error: ApiError) -> dict[str, Any]:
    return {"error": error.described(), "message": error.message, "detail": error.message}
