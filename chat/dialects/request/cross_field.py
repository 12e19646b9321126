"""Which fields forbid each other, looked at on the raw object, before any field's own type: the first rule that fails answers.

The order is the specification's, so that a request with several faults always gets the same answer. Values of a wrong type are
passed over here; the schema refuses them next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ValidationError

from chat.dialects.request.fields import boolean_read, integer_read
from chat.errors import ApiError

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
FORMAT_TYPES = ("text", "json_object", "json_schema", "structural_tag")


def cross_field_check(body: Mapping[str, Any], *, max_id_chars: int) -> None:
    """Run every rule in order; raises ApiError of the first that fails."""
    _check_cache_salt(body, max_id_chars)
    _check_continuation(body)
    _check_tools(body)
    _check_structured_outputs(body)
    _check_logprobs(body)
    _check_stream_options(body)
    _check_response_format(body)


def _invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(code, f"{param} {message}", param)


def _boolean(value: Any) -> bool:
    try:
        return boolean_read(value)
    except ValidationError:
        return False


def _integer(value: Any) -> int:
    try:
        return integer_read(value)
    except ValidationError:
        return 0


def _check_cache_salt(body: Mapping[str, Any], max_id_chars: int) -> None:
    salt = body.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str):
        raise _invalid("cache_salt", "must be a string", "invalid_type")
    if not 1 <= len(salt) <= max_id_chars:
        raise _invalid("cache_salt", f"must have 1 to {max_id_chars} characters, got {len(salt)}")
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in salt):
        raise _invalid("cache_salt", "must not contain control characters")


def _check_continuation(body: Mapping[str, Any]) -> None:
    if _boolean(body.get("continue_final_message")) and _boolean(body.get("add_generation_prompt")):
        raise _invalid("continue_final_message", "cannot be combined with add_generation_prompt: true; leave one of them out")


def _check_tools(body: Mapping[str, Any]) -> None:
    functions, call, tools, choice = (body.get(name) for name in ("functions", "function_call", "tools", "tool_choice"))
    if (functions or call is not None) and (tools or choice is not None):
        raise _invalid("functions" if functions else "function_call", "cannot be combined with tools or tool_choice; use tools")
    if call is not None and call != "none" and not functions:
        raise _invalid("function_call", "needs functions to choose from")
    if choice is None or tools:
        return
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise _invalid("tool_choice", "must be none, auto, required or an object that names a function")
    if choice not in ("none", "auto"):
        raise _invalid("tool_choice", "needs tools to choose from")


def _check_structured_outputs(body: Mapping[str, Any]) -> None:
    structured = body.get("structured_outputs")
    if not isinstance(structured, dict):
        return
    given = [name for name in CONSTRAINTS if structured.get(name) is not None]
    response_format = body.get("response_format")
    is_formatted = isinstance(response_format, dict) and response_format.get("type") not in (None, "text")
    if len(given) > 1:
        raise _invalid("structured_outputs", f"takes one constraint, got {' and '.join(given)}")
    if given and is_formatted:
        raise _invalid("structured_outputs", "cannot be combined with response_format; use one of them")
    if not given and not is_formatted:
        raise _invalid("structured_outputs", f"needs one of {', '.join(CONSTRAINTS)}")
    if given and choice_is_forced(body.get("tool_choice")):
        raise _invalid("structured_outputs", "cannot be combined with a tool_choice that forces a tool")


def choice_is_forced(tool_choice: Any) -> bool:
    """Whether this `tool_choice` makes the answer a tool call."""
    return tool_choice == "required" or isinstance(tool_choice, dict)


def _check_logprobs(body: Mapping[str, Any]) -> None:
    if _integer(body.get("top_logprobs")) != 0 and not _boolean(body.get("logprobs")):
        raise _invalid("top_logprobs", "needs logprobs: true")
    if body.get("logprob_token_ids") and not _boolean(body.get("logprobs")):
        raise _invalid("logprob_token_ids", "needs logprobs: true")
    if _boolean(body.get("stream")) and _integer(body.get("prompt_logprobs")) != 0:
        raise _invalid("prompt_logprobs", "must be 0 or absent when stream is true")


def _check_stream_options(body: Mapping[str, Any]) -> None:
    if body.get("stream_options") and not _boolean(body.get("stream")):
        raise _invalid("stream_options", "is allowed only when stream is true")


def _check_response_format(body: Mapping[str, Any]) -> None:
    response_format = body.get("response_format")
    if response_format is None:
        return
    if not isinstance(response_format, dict):
        raise _invalid("response_format", "must be an object", "invalid_type")
    kind = response_format.get("type")
    if kind not in FORMAT_TYPES:
        raise ApiError("invalid_value", f"response_format.type must be one of {', '.join(FORMAT_TYPES)}", "response_format.type")
    if kind != "json_schema":
        return
    schema = response_format.get("json_schema")
    if not isinstance(schema, dict):
        raise ApiError("invalid_value", "response_format.json_schema must be an object", "response_format.json_schema")
    if not isinstance(schema.get("name"), str):
        raise ApiError("invalid_value", "response_format.json_schema.name must be a string", "response_format.json_schema.name")
