"""Translate the prompt form of a Scale request, with the fields of both generations, into a text completion.

Older clients ask for log-probabilities with true, in the shape of chats; newer ones with a number, in the older shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework import serializers

from chat.api.request.fields import Array, Boolean, Integer, RequestField, bad_value, integer_read, refuse
from chat.api.request.schema import MAX_TOKENS, ChatCompletionRequest
from chat.api.request.text_schema import LIMITS, CompletionRequest, Prompts, TextRequest, text_parse
from chat.api.scale.fields import MAX_STOP_STRINGS, OWN, nullable, own_values
from chat.api.scale.read import NOT_EXTRA, checked, fields_translated, ignored_names, with_own

TOKEN_LIMITS = ("max_completion_tokens", "max_tokens", "max_new_tokens")
"""Names of one limit. The first that is sent counts."""
OF_CHATS = ("messages", "memory_strategy")


class Logprobs(RequestField):
    """True for the tokens themselves in the shape of chats, or the number of alternatives.

    Reads to the value as sent.
    """

    json_schema = {"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": LIMITS.max_logprobs}]}

    def to_internal_value(self, data: Any) -> bool | int:
        return data if isinstance(data, bool) else integer_read(data, accepts_strings=False)


class NoTools(Array):
    def to_internal_value(self, data: Any) -> Any:
        if super().to_internal_value(data):
            raise refuse(
                "unsupported_parameter", "cannot be used with a prompt; send messages to the route of chat completions"
            )
        return data


class NoToolChoice(RequestField):
    json_schema = {"type": "string", "enum": ["none", "auto"]}

    def to_internal_value(self, data: Any) -> Any:
        if data not in ("none", "auto"):
            raise refuse("invalid_value", "must be none or auto, as a prompt has no tools to choose from")
        return data


def _limit(help_text: str) -> Integer:
    return Integer(help_text, minimum=1, maximum=MAX_TOKENS)


OWN_TEXT: Mapping[str, RequestField] = {
    "model": OWN["model"],
    "prompt": Prompts(max_items=LIMITS.max_prompts, help_text="One prompt or several, as text or as token ids."),
    **{name: field for name, field in OWN.items() if name not in ("model", *OF_CHATS, "suffix")},
    "logprobs": Logprobs(
        "true: log-probabilities as chats have them; a number: the older shape, with so many alternatives."
    ),
    "top_logprobs": Integer(
        "Alternatives per token; needs logprobs: true.", minimum=0, maximum=LIMITS.max_logprobs, accepts_strings=False
    ),
    "return_token_log_probs": Boolean("Another name of logprobs: true."),
    "max_completion_tokens": _limit("Limit of generated tokens of each choice; goes before max_tokens."),
    "max_tokens": Integer("The same; 0 only with echo. Absent: 16.", minimum=0, maximum=MAX_TOKENS),
    "max_new_tokens": _limit("The same, where neither of the others is sent."),
    "stop_sequences": Array(max_items=MAX_STOP_STRINGS, help_text="Another name of stop."),
    "tools": NoTools(help_text="Empty: a prompt has no place for tools."),
    "tool_choice": NoToolChoice("none or auto, without effect."),
    "parallel_tool_calls": Boolean("Without effect."),
    "modalities": ChatCompletionRequest().get_fields()["modalities"],
}
SHARED_TEXT = tuple(
    """
    response_format include_stop_str_in_output stream stream_options frequency_penalty presence_penalty logit_bias n
    seed temperature top_p top_k user prediction echo suffix
    """.split()
)
_TEXT_FIELDS = CompletionRequest().get_fields()
EXTRA_FIELDS = frozenset(_TEXT_FIELDS) - {*NOT_EXTRA, "prompt", "best_of"}


class ScaleTextRequest(serializers.Serializer):
    """The body of a text completion, for the description of the API."""

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = {**OWN_TEXT, **{name: _TEXT_FIELDS[name] for name in SHARED_TEXT}}
        return {name: nullable(field) for name, field in fields.items()}


def scale_text_parse(body: dict[str, Any]) -> TextRequest:
    """Check and translate the body of a text completion. Raises ApiError."""
    given = {name: value for name, value in body.items() if value is not None}
    own = own_values(given, OWN_TEXT)
    fields, names = fields_translated(given, own, shared=SHARED_TEXT, extra_fields=EXTRA_FIELDS)
    renamed: dict[str, str] = {}
    _add_limit(fields, own, renamed)
    _add_stop(fields, own, renamed)
    has_chat_logprobs = _add_logprobs(fields, own, renamed)
    names = replace(names, renamed=renamed)
    parsed = checked(text_parse, {**fields, "prompt": given["prompt"], "best_of": own["best_of"]}, names)
    parsed = with_own(parsed, own, names, must_fit="max_tokens" in fields)
    ignored = ignored_names(given, own, known={*OWN_TEXT, *SHARED_TEXT}, extra_fields=EXTRA_FIELDS)
    delivery = replace(parsed.delivery, ignored=ignored)
    return replace(parsed, delivery=delivery, has_chat_logprobs=has_chat_logprobs)


def _add_limit(fields: dict[str, Any], own: Mapping[str, Any], renamed: dict[str, str]) -> None:
    name = next((name for name in TOKEN_LIMITS if own[name] is not None), None)
    if name is not None:
        fields["max_tokens"] = own[name]
        renamed["max_tokens"] = name


def _add_stop(fields: dict[str, Any], own: Mapping[str, Any], renamed: dict[str, str]) -> None:
    if own["stop_sequences"] is None:
        return
    if own["stop"] is not None:
        raise bad_value("stop_sequences", "is another name of stop; send one of them")
    fields["stop"] = own["stop_sequences"]
    renamed["stop"] = "stop_sequences"


def _add_logprobs(fields: dict[str, Any], own: Mapping[str, Any], renamed: dict[str, str]) -> bool:
    """Set `logprobs` of the text completion. Return True if they are to have the shape of chats."""
    sent = own["logprobs"] if own["logprobs"] is not None else own["return_token_log_probs"]
    if sent is not None:
        fields.pop("logprobs", None)
        renamed["logprobs"] = "logprobs"
    if sent is True:
        fields["logprobs"] = own["top_logprobs"] or 0
        renamed["logprobs"] = "top_logprobs"
        return True
    if own["top_logprobs"]:
        raise bad_value("top_logprobs", "needs logprobs: true")
    if sent is not None and sent is not False:
        fields["logprobs"] = sent
    return False
