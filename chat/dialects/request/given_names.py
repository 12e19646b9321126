"""The engine's refusals in the words of the request: it knows one token limit and one form of tools, a request may have used the older one
or the newer one. Called where an error of the engine goes out to the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.errors import ApiError


def as_given(error: ApiError, values: Mapping[str, Any]) -> ApiError:
    """The error with the name of the field that the request has; `values` are the checked ones."""
    name = (error.param or "").partition(".")[0]
    given = _given(name, values)
    if given == name or error.param is None:
        return error
    error.param = given + error.param.removeprefix(name)
    error.message = error.message.replace(name, given, 1)
    return error


def _given(name: str, values: Mapping[str, Any]) -> str:
    if name == "max_tokens" and values.get("max_completion_tokens") is not None:
        return "max_completion_tokens"
    if values.get("functions"):
        return {"tools": "functions", "tool_choice": "function_call"}.get(name, name)
    return name
