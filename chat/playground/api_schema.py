"""The fields of the page's routes beside conversations, with their limits."""

from __future__ import annotations

from typing import Any

import orjson
from rest_framework import serializers

from chat.api.request.fields import Boolean, Object, RequestField, Text, refuse
from chat.conversations.schema import MAX_MODEL_CHARS
from chat.playground.checks import KINDS, MAX_TEXT_BYTES
from chat.playground.models import MAX_PRESET_CHARS

MAX_PARAMETERS_BYTES = 64 * 1024


class Parameters(Object):
    """Fields of a request, as far as they are set."""

    def to_internal_value(self, data: Any) -> Any:
        num_bytes = len(orjson.dumps(super().to_internal_value(data)))
        if num_bytes > MAX_PARAMETERS_BYTES:
            raise refuse("invalid_value", f"must be at most {MAX_PARAMETERS_BYTES} bytes long, got {num_bytes}")
        return data


class PresetChange(serializers.Serializer):
    name = Text(max_chars=MAX_PRESET_CHARS, is_filled=True, is_label=True)
    parameters = Parameters()
    is_shared = Boolean()


class NewPreset(PresetChange):
    name = Text(max_chars=MAX_PRESET_CHARS, is_filled=True, is_label=True, is_required=True)
    parameters = Parameters(is_required=True)


class NamedModel(serializers.Serializer):
    model = Text(max_chars=MAX_MODEL_CHARS, is_filled=True, is_label=True, is_required=True)


class AnyValue(RequestField):
    """A value whose type depends on another field."""

    def to_internal_value(self, data: Any) -> Any:
        return data


class ConstraintCheck(serializers.Serializer):
    kind = Text(choices=KINDS, is_required=True)
    value = AnyValue(is_required=True)
    text = Text(max_bytes=MAX_TEXT_BYTES)


MODEL, CONSTRAINT_CHECK = NamedModel(), ConstraintCheck()
PRESET_CHANGE, NEW_PRESET = PresetChange(), NewPreset()
