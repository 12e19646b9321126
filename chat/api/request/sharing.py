"""Schemas of other requests that share fields with a chat completion, and how they are read."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import field_problems
from chat.api.request.ignored import unknown_names
from chat.api.request.schema import ChatCompletionRequest
from chat.errors import problems_error


class SharingRequest(serializers.Serializer):
    """Fields of its own, and those of a chat completion that are named in `shared`. Unknown fields are passed over and named."""

    shared: tuple[str, ...] = ()

    def get_fields(self) -> dict[str, serializers.Field]:
        chat = ChatCompletionRequest().get_fields()
        return {**super().get_fields(), **{name: chat[name] for name in self.shared}}


def fields_read(schema: serializers.Serializer, body: dict[str, Any]) -> dict[str, Any]:
    """The value of every field of `schema`, and those that it does not know as `ignored`; raises ApiError that names the first problem's
    field."""
    try:
        values: dict[str, Any] = dict(schema.run_validation(body))
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None
    return {**values, "ignored": unknown_names(body, schema.fields)}
