"""Write errors as Anthropic's clients read them. `code` and `param` are the same as in the other dialects."""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError

TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
"""From a status to a type. All other statuses are wrong requests."""
LASTING = "model_load_failed"
"""The code that is not an `overloaded_error`, as waiting does not help."""


def error_body(error: ApiError, request_id: str | None) -> dict[str, Any]:
    message = error.message
    if error.code == "context_length_exceeded" and error.limit is not None:
        # NOTE: clients look for these words.
        message = f"prompt is too long: {error.value} tokens > {error.limit} maximum. {message}"
    described = {
        "type": "api_error" if error.code == LASTING else TYPES.get(error.status, "invalid_request_error"),
        "message": message,
        "code": error.code,
        "param": error.param,
    }
    return {"type": "error", "error": described, "request_id": request_id}
