"""The query strings of lists. Unknown names are ignored, as unknown fields are everywhere."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import Integer, Text, field_problems
from chat.batches.models import Purpose
from chat.errors import problems_error

MAX_ID_CHARS = 64


class FilesQuery(serializers.Serializer):
    purpose = Text(choices=tuple(Purpose.values))
    limit = Integer(minimum=1, maximum=10_000, default=10_000)
    order = Text(choices=("asc", "desc"), default="desc")
    after = Text(max_chars=MAX_ID_CHARS, default="")


class BatchesQuery(serializers.Serializer):
    limit = Integer(minimum=1, maximum=100, default=20)
    after = Text(max_chars=MAX_ID_CHARS, default="")


def query_read(request: HttpRequest, schema: serializers.Serializer) -> dict[str, Any]:
    """Read the schema's fields; the last value of a name counts. Raises ApiError that names the first bad field."""
    try:
        values: dict[str, Any] = schema.run_validation(
            {name: value for name, value in request.GET.items() if value != ""}
        )
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None
    return values


FILES_QUERY, BATCHES_QUERY = FilesQuery(), BatchesQuery()
