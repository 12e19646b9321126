"""The fields of a Scale request: its own, and those of the Lightcone request (docs/api/scale.md).

Every optional field may be null, which counts as absent.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import GUIDED
from chat.api.request.fields import (
    Integer,
    Object,
    Record,
    RequestField,
    Text,
    echo,
    field_problems,
    number_read,
    refuse,
)
from chat.api.request.objects import Messages, Stop
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.tools import Function, Tools
from chat.api.scale.messages import MemoryStrategy
from chat.errors import problems_error

LIMITS = settings.LIGHTCONE_LIMITS
MAX_STOP_STRINGS = 4
BACKENDS = ("outlines", "lm-format-enforcer")
AUDIO_FORMATS = ("wav", "mp3", "flac", "opus", "pcm16")
VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse")


class Seconds(RequestField):
    """A time above 0, as a number or in decimal digits. Reads to seconds."""

    json_schema = {"oneOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            raise refuse("invalid_type", f"must be a number of seconds, got {echo(data)}")
        seconds = number_read(data)
        if seconds <= 0:
            raise refuse("invalid_value", f"must be above 0 seconds, got {seconds:g}")
        return seconds


class Audio(Record):
    """The form of spoken answers. It is checked only, as no model here can speak."""

    parts = {
        "format": Text(choices=AUDIO_FORMATS, is_required=True),
        "voice": Text(choices=VOICES, is_required=True),
    }


class ScaleTool(Record):
    """One entry of `tools`. It has a function, whatever its type is called."""

    parts = {
        "type": Text("function, or any other word."),
        "function": Function(is_required=True),
    }


CHAT_FIELDS = ChatCompletionRequest().get_fields()
OWN: Mapping[str, RequestField] = {
    "model": Text(
        "vendor/name or vendor/name/deployment; an exact served name or alias goes first.",
        max_chars=LIMITS.max_label_chars,
        is_label=True,
        is_filled=True,
        is_required=True,
    ),
    "messages": Messages(help_text="The conversation so far."),
    "memory_strategy": MemoryStrategy(
        "last_k: the model is shown the last k messages, and those of the system before them."
    ),
    **{name: CHAT_FIELDS[name] for name in GUIDED},
    "guided_decoding_backend": Text("Checked, without effect: the engine has its own.", choices=BACKENDS),
    "stop": Stop("Strings that end the answer; the text is cut before them.", max_strings=MAX_STOP_STRINGS),
    "best_of": Integer(
        "Generate so many, answer with the n most likely; not with stream.", minimum=1, maximum=LIMITS.max_n
    ),
    "suffix": Text("What follows the answer: the model fills in between the last user message and this."),
    "audio": Audio("Checked, without effect: answers are text."),
    "inference_timeout": Seconds("Give the request up after this many seconds."),
    "inference_extra_params": Object("Further fields of the Lightcone request; those sent beside it win."),
    "inference_extra_headers": Object("Without effect: there is no server behind this one."),
}
SHARED = tuple(
    """
    chat_template chat_template_kwargs response_format include_stop_str_in_output stream stream_options
    frequency_penalty presence_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n seed
    temperature top_p top_k user modalities prediction tools tool_choice parallel_tool_calls reasoning_effort
    metadata store functions function_call
    """.split()
)
"""Fields that the Lightcone request checks."""


class ScaleChatRequest(serializers.Serializer):
    """The body of a chat completion, for the description of the API."""

    def get_fields(self) -> dict[str, serializers.Field]:
        chat = ChatCompletionRequest().get_fields()
        fields: dict[str, RequestField] = {**OWN, **{name: chat[name] for name in SHARED}}
        fields["tools"] = Tools(ScaleTool(nullable=False), "function.name", help_text=chat["tools"].help_text)
        return {name: nullable(field) for name, field in fields.items()}


def nullable(field: RequestField) -> RequestField:
    """Return the same field, which takes null unless it is required."""
    field = copy.deepcopy(field)
    field.nullable = not field.required
    return field


def own_values(given: Mapping[str, Any], fields: Mapping[str, RequestField]) -> dict[str, Any]:
    """Return the value of each of `fields`. Raises ApiError with all problems."""
    values: dict[str, Any] = {}
    problems: dict[str, Any] = {}
    for name, field in fields.items():
        try:
            values[name] = field.run_validation(given.get(name, serializers.empty))
        except ValidationError as error:
            problems[name] = error.detail
    if problems:
        raise problems_error(field_problems(problems))
    return values
