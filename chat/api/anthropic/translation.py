"""Translate a message into the one request schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework import serializers

from chat.api.anthropic.conversation import ConversationReader
from chat.api.anthropic.names import MessageNames
from chat.api.anthropic.schema import MESSAGES
from chat.api.request.fields import bad_value, echo
from chat.api.request.parse import fields_read, request_parse, unknown_names
from chat.api.request.parsed import ParsedRequest
from chat.errors import ApiError

SAME = ("model", "max_tokens", "stream", "temperature", "top_p", "top_k")
MODES = {"auto": "auto", "any": "required", "none": "none"}
TIERS = {"auto": "priority", "standard_only": "default"}
"""`auto` asks for an earlier place in the queue; `rights_check` gives it to keys that may have one."""
KNOWN = frozenset(MESSAGES.fields)
NO_REASONS = {"diagnostics": {"cache_miss_reason": {"type": "unavailable"}}}
"""The answer to a request that asks why the cache was not used."""


def message_parse(schema: serializers.Serializer, body: dict[str, Any]) -> ParsedRequest:
    """Check and translate the body of a message. Raises ApiError in the client's names."""
    names = MessageNames()
    fields = fields_read(schema, body)
    _check_together(fields)
    messages = ConversationReader(names).read(fields["system"], fields["messages"])
    translated: dict[str, Any] = {name: fields[name] for name in SAME if fields.get(name) is not None}
    translated |= {"messages": messages, **_tools(fields, names), **_thinking(fields), **_output(fields, names)}
    if fields.get("stop_sequences"):
        translated["stop"] = fields["stop_sequences"]
    if fields.get("service_tier"):
        translated["service_tier"] = TIERS[fields["service_tier"]]
    if messages[-1]["role"] == "assistant":
        translated["continue_final_message"] = True
        names.note("continue_final_message", f"messages.{len(fields['messages']) - 1}")
    try:
        parsed = request_parse(translated)
    except ApiError as error:
        error.rename_fields(names)
        raise
    user = (fields.get("metadata") or {}).get("user_id")
    ignored = (*_ignored_tools(fields), *unknown_names(body, KNOWN))
    return replace(
        parsed,
        response=replace(parsed.response, echo_fields={} if fields.get("diagnostics") is None else NO_REASONS),
        delivery=replace(parsed.delivery, user=user, ignored=ignored),
        field_names=names,
    )


def _check_together(fields: Mapping[str, Any]) -> None:
    thinking, limit = fields["thinking"] or {}, fields.get("max_tokens")
    budget = thinking.get("budget_tokens")
    if budget is not None and limit is not None and budget >= limit:
        raise bad_value("thinking.budget_tokens", f"must be less than max_tokens, which is {limit}, got {budget}")
    if fields["output_format"] and (fields["output_config"] or {}).get("format"):
        raise bad_value("output_format", "cannot be combined with output_config.format; use that alone")
    choice = fields["tool_choice"] or {}
    offered = [tool["name"] for _, tool in _offered(fields)]
    if choice.get("type") in ("any", "tool") and not offered:
        raise bad_value("tool_choice", "needs tools to choose from, of type custom")
    if choice.get("type") == "tool" and choice["name"] not in offered:
        raise bad_value(
            "tool_choice.name", f"must be the name of one of tools, of type custom; got {echo(choice['name'])}"
        )


def _offered(fields: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the tools that the model gets to know, each with its place in the list."""
    return [(place, tool) for place, tool in enumerate(fields["tools"] or ()) if tool["type"] == "custom"]


def _ignored_tools(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of tools of Anthropic's own types, which have no schema: its servers or models know them."""
    return [
        f"tools.{place}:{tool['type']}" for place, tool in enumerate(fields["tools"] or ()) if tool["type"] != "custom"
    ]


def _tools(fields: Mapping[str, Any], names: MessageNames) -> dict[str, Any]:
    choice = fields["tool_choice"]
    offered = _offered(fields)
    for index, (place, _) in enumerate(offered):
        names.note(f"tools.{index}", f"tools.{place}")
    translated: dict[str, Any] = {"tools": [_tool(tool) for _, tool in offered]}
    if choice is not None:
        is_named = choice["type"] == "tool"
        translated["tool_choice"] = {"function": {"name": choice["name"]}} if is_named else MODES[choice["type"]]
        translated["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
    return translated


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool as a function. Examples go into the description, where the model reads them."""
    description = tool["description"]
    if tool["input_examples"]:
        examples = "\n".join(json.dumps(example, ensure_ascii=False) for example in tool["input_examples"])
        description = (
            f"{description}\n\nExamples of input:\n{examples}".lstrip()
            if description
            else f"Examples of input:\n{examples}"
        )
    function = {"name": tool["name"], "parameters": tool["input_schema"], "strict": tool["strict"]}
    return {
        "type": "function",
        "function": function | ({"description": description} if description is not None else {}),
    }


def _thinking(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for thinking. Without a request for thoughts none may stand before the text."""
    thinking = fields["thinking"] or {"type": "disabled"}
    is_on = thinking["type"] != "disabled"
    translated: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": is_on},
        "include_reasoning": is_on and thinking["display"] != "omitted",
    }
    if thinking.get("budget_tokens") is not None:
        translated["thinking_token_budget"] = thinking["budget_tokens"]
    return translated


def _output(fields: Mapping[str, Any], names: MessageNames) -> dict[str, Any]:
    config = fields["output_config"] or {}
    translated: dict[str, Any] = {}
    if config.get("effort") is not None:
        translated["reasoning_effort"] = config["effort"]
    form = fields["output_format"] or config.get("format")
    if form is not None:
        translated["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "output", "schema": form["schema"]},
        }
    if fields["output_format"]:
        for name in ("response_format", "response_format.json_schema"):
            names.note(name, "output_format")
    return translated
