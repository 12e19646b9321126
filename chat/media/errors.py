"""The refusal of media. Its texts never tell what a target answered."""

from __future__ import annotations

from chat.errors import ApiError


def media_refused(param: str, message: str, *, limit: int | None = None, value: int | None = None) -> ApiError:
    """Return the refusal of an item; the message follows the name of its field."""
    return ApiError("invalid_media", f"{param} {message}", param, limit=limit, value=value)
