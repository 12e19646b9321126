"""Errors as Scale's clients read them: the shape of the Lightcone dialect and `detail` beside it."""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError


def error_body(error: ApiError) -> dict[str, Any]:
    described = {"message": error.message, "type": error.answer.type, "param": error.param, "code": error.code}
    return {"error": described, "message": error.message, "detail": error.message}
