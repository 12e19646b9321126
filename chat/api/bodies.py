"""Bodies of routes that manage things: small objects, of which unknown fields are refused."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError as FieldsRefused

from chat.api.request.fields import bad_value, field_problems
from chat.api.view import object_read
from chat.errors import problems_error


async def values_sent(schema: serializers.Serializer, request: HttpRequest) -> dict[str, Any]:
    """Read the fields of a body that were sent, and those with a default. Raises ApiError by field."""
    data = await object_read(request)
    unknown = sorted(set(data) - set(schema.fields))
    if unknown:
        raise bad_value(unknown[0], f"is unknown here; the fields are {', '.join(schema.fields)}")
    try:
        values = schema.run_validation(data)
    except FieldsRefused as error:
        raise problems_error(field_problems(error.detail)) from None
    return {name: value for name, value in values.items() if name in data or value is not None}
