"""The rules between fields, checked on the raw object before any field's own type. The first that fails is the answer.

The order is fixed. Values of a wrong type are skipped; the schema refuses them next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import CONSTRAINT_KEYS, GUIDED_CONSTRAINTS, ResponseFormat
from chat.api.request.fields import bad_value, boolean_read, echo, field_read, integer_read
from chat.api.request.tools import function_call_read, is_forced, raw_choice, raw_names, tool_choice_read
from engine.api import ToolChoice, ToolMode

STRUCTURED_FORMATS = ("json_object", "json_schema", "structural_tag")
RESPONSE_FORMAT = ResponseFormat()
FOREIGN_CONSTRAINTS = {
    "format": "response_format",
    "json_schema": "response_format, or structured_outputs.json",
    "grammar": "structured_outputs.grammar (EBNF or Lark)",
    "ebnf": "structured_outputs.grammar",
    "regex": "structured_outputs.regex",
    "structural_tag": "structured_outputs.structural_tag",
}
"""Fields of other servers that constrain the answer, and what to send instead. A client that sends one relies on it."""


def cross_field_check(body: Mapping[str, Any]) -> None:
    """Check every rule in order. Raises ApiError for the first that fails."""
    _check_cache_salt(body)
    _check_continuation(body)
    _check_functions(body)
    _check_tool_choice(body)
    _check_structured_outputs(body)
    _check_logprobs(body)
    _check_stream_options(body)
    field_read("response_format", RESPONSE_FORMAT.run_validation, body.get("response_format"))


def foreign_check(body: Mapping[str, Any]) -> None:
    """Refuse a constraint in a field of another server, as it would have no effect. Raises ApiError."""
    for name, instead in FOREIGN_CONSTRAINTS.items():
        if body.get(name) is not None:
            raise bad_value(name, f"is not a field of this server; use {instead}", "unsupported_parameter")


def _is(value: Any, wanted: bool) -> bool:
    """Return True if a boolean field has this value. Absent counts as false; a value of another type is neither."""
    try:
        return (value is not None and boolean_read(value)) is wanted
    except ValidationError:
        return False


def _count(value: Any) -> int:
    """Return the value of an integer field that takes no strings; 0 if it is absent or no integer."""
    try:
        return integer_read(value, accepts_strings=False)
    except ValidationError:
        return 0


def _check_cache_salt(body: Mapping[str, Any]) -> None:
    salt, max_id_chars = body.get("cache_salt"), settings.LIGHTCONE_LIMITS.max_id_chars
    if salt is None:
        return
    if not isinstance(salt, str):
        raise bad_value("cache_salt", f"must be a string, got {echo(salt)}", "invalid_type")
    if not 1 <= len(salt) <= max_id_chars:
        raise bad_value("cache_salt", f"must have 1 to {max_id_chars} characters, got {len(salt)}")
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in salt):
        raise bad_value("cache_salt", "must not contain control characters")


def _check_continuation(body: Mapping[str, Any]) -> None:
    if _is(body.get("continue_final_message"), True) and _is(body.get("add_generation_prompt"), True):
        message = "cannot be combined with add_generation_prompt: true; leave one of them out"
        raise bad_value("continue_final_message", message)


def _check_functions(body: Mapping[str, Any]) -> None:
    functions, call, tools, choice = (body.get(name) for name in ("functions", "function_call", "tools", "tool_choice"))
    if (functions or call is not None) and (tools or choice is not None):
        name = "functions" if functions else "function_call"
        raise bad_value(name, "cannot be combined with tools or tool_choice; use tools")
    if isinstance(call, str | dict):
        chosen = field_read("function_call", function_call_read, call)
        if chosen.mode != ToolMode.NONE and not functions:
            raise bad_value("function_call", "needs functions to choose from")
        _check_known(chosen, raw_names(functions, ("name",)), "function_call.name", "functions")


def _check_tool_choice(body: Mapping[str, Any]) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if not isinstance(choice, str | dict):
        return
    chosen = field_read("tool_choice", tool_choice_read, choice)
    if not tools and (is_forced(chosen) or chosen.names):
        raise bad_value("tool_choice", "needs tools to choose from")
    is_named = chosen.mode == ToolMode.NAMED
    param = "tool_choice.function.name" if is_named else "tool_choice.allowed_tools.tools.{}.function.name"
    _check_known(chosen, raw_names(tools, ("function", "name")), param, "tools")


def _check_known(choice: ToolChoice, names: set[str] | None, param: str, source: str) -> None:
    """Check that every chosen name is one of `names`; None is a malformed list, which its own field refuses."""
    for index, name in enumerate(choice.names):
        if names is not None and name not in names:
            raise bad_value(param.format(index), f"must be the name of one of {source}, got {name[:200]!r}")


def _check_structured_outputs(body: Mapping[str, Any]) -> None:
    structured = body.get("structured_outputs")
    own = [name for name in CONSTRAINT_KEYS if structured.get(name) is not None] if isinstance(structured, dict) else []
    given = [*own, *(name for name in GUIDED_CONSTRAINTS if body.get(name) is not None)]
    if not isinstance(structured, dict) and not given:
        return
    place = "structured_outputs" if isinstance(structured, dict) else given[0]
    response_format = body.get("response_format")
    is_formatted = isinstance(response_format, dict) and response_format.get("type") in STRUCTURED_FORMATS
    has_forced_call = is_forced(raw_choice(body))
    if len(given) > 1 and place == "structured_outputs":
        raise bad_value(place, f"takes one constraint, got {' and '.join(given)}")
    if len(given) > 1:
        raise bad_value(place, f"cannot be combined with {' and '.join(given[1:])}; send one of them")
    if given and is_formatted:
        raise bad_value(place, "cannot be combined with response_format; use one of them")
    if not (given or is_formatted or has_forced_call):
        raise bad_value(place, f"needs one of {', '.join(CONSTRAINT_KEYS)}")
    if given and has_forced_call:
        raise bad_value(place, "cannot be combined with a tool_choice that forces a call")


def _check_logprobs(body: Mapping[str, Any]) -> None:
    has_none = _is(body.get("logprobs"), False)
    if has_none and _count(body.get("top_logprobs")) != 0:
        raise bad_value("top_logprobs", "needs logprobs: true")
    if has_none and isinstance(body.get("logprob_token_ids"), list) and body["logprob_token_ids"]:
        raise bad_value("logprob_token_ids", "needs logprobs: true")
    if _is(body.get("stream"), True) and _count(body.get("prompt_logprobs")) != 0:
        raise bad_value("prompt_logprobs", "must be 0 or absent when stream is true")


def _check_stream_options(body: Mapping[str, Any]) -> None:
    options = body.get("stream_options")
    if isinstance(options, dict) and options and _is(body.get("stream"), False):
        raise bad_value("stream_options", "is allowed only when stream is true")
