"""The fields of conversations and turns, with their limits. Unknown fields are refused: they would be mistakes here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.fields import (
    Array,
    Boolean,
    Integer,
    Object,
    Record,
    RequestField,
    Text,
    echo,
    field_problems,
    refuse,
)
from chat.api.request.strict_json import JsonBounds, json_bounds, json_object_read
from chat.api.view import body_read
from chat.conversations.facets import Filters
from chat.conversations.models import MAX_FOLDER_CHARS, MAX_TITLE_CHARS, TurnState
from chat.conversations.runs import RUN_NAME
from chat.conversations.services import MAX_TAGS, VIEWS
from chat.conversations.sharing import MAX_PASSWORD_CHARS
from chat.errors import ApiError, problems_error

ID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_DEPTH = 64
"""Levels of nesting in what is stored, far below what writing JSON can take."""
MAX_MODEL_CHARS, MAX_WORD_CHARS, MAX_QUERY_CHARS = 200, 64, 200
MAX_TAG_CHARS = 40
MIN_PASSWORD_CHARS = 6
MAX_IDS = 1_000
EXPORT_FORMATS = ("json", "markdown", "jsonl")
MAX_TURNS_AT_ONCE = 64
MAX_CHOICE, MAX_REQUEST_ID_CHARS = 127, 128
MIN_LINK_S, MAX_LINK_S = 60, 365 * 24 * 3600
LAST_POSITION = 2**62
LAST_SECOND = 253_402_300_799
"""Of the year 9999."""


class Content(RequestField):
    """A text, a list of content parts, or an answer with its choices."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, str | list | dict):
            raise refuse("invalid_type", f"must be a string, an array of parts or an answer, got {echo(data)}")
        return data


def id_read(value: Any) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise refuse("invalid_value", f"must be 1 to 64 letters, digits and hyphens, got {echo(value)}")
    return value


def _parent_read(value: str) -> str:
    return id_read(value) if value else ""


def _tag_read(value: Any) -> str:
    tag: str = TAG.run_validation(value)
    return tag


TAG = Text(max_chars=MAX_TAG_CHARS, is_filled=True, is_label=True, is_required=True)


class NewConversationFields(serializers.Serializer):
    title = Text(max_chars=MAX_TITLE_CHARS, is_label=True)
    folder = Text(max_chars=MAX_FOLDER_CHARS, is_label=True)
    settings = Object()


class ConversationFields(NewConversationFields):
    tags = Array(_tag_read, max_items=MAX_TAGS)
    is_pinned = Boolean()
    is_archived = Boolean()


class ChangeFields(ConversationFields):
    version = Integer(minimum=1)
    head = Text(read=id_read)


class Cost(Record):
    """What an answer has cost: a decimal number as text, and its currency."""

    parts = {
        "amount": Text(max_chars=MAX_WORD_CHARS, is_required=True),
        "currency": Text(max_chars=MAX_WORD_CHARS, is_required=True),
    }


class TurnFields(serializers.Serializer):
    parent = Text(read=_parent_read, default="")
    role = Text(choices=ROLES, is_required=True)
    state = Text(choices=tuple(TurnState.values), is_required=True)
    content = Content()
    run = Text(pattern=RUN_NAME.pattern)
    model = Text(max_chars=MAX_MODEL_CHARS)
    time = Text(max_chars=MAX_WORD_CHARS)
    outcome = Text(max_chars=MAX_WORD_CHARS)
    tool_call_id = Text(max_chars=MAX_MODEL_CHARS)
    choice = Integer(minimum=0, maximum=MAX_CHOICE)
    seed = Integer()
    request_id = Text(max_chars=MAX_REQUEST_ID_CHARS)
    fingerprint = Text(max_chars=MAX_MODEL_CHARS)
    cost = Cost()
    parameters = Object()
    usage = Object()
    timings = Object()
    error = Object()


class SentTurnFields(TurnFields):
    id = Text(read=id_read, is_required=True)


class TurnsFields(serializers.Serializer):
    conversation = Object()
    turns = Array(
        Object().to_internal_value,
        max_items=MAX_TURNS_AT_ONCE,
        if_empty="must hold at least one turn",
        is_required=True,
    )


class IdsFields(serializers.Serializer):
    ids = Array(id_read, max_items=MAX_IDS, if_empty="must name at least one conversation", is_required=True)


class ChangeSeveralFields(IdsFields):
    folder = Text(max_chars=MAX_FOLDER_CHARS, is_label=True)
    is_archived = Boolean()


def _password_read(value: str) -> str:
    if 0 < len(value) < MIN_PASSWORD_CHARS:
        message = f"must have {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters, or none for no password"
        raise refuse("invalid_value", f"{message}; got {len(value)}")
    return value


class LinkFields(serializers.Serializer):
    expires_in_s = Integer(minimum=MIN_LINK_S, maximum=MAX_LINK_S)
    password = Text(max_chars=MAX_PASSWORD_CHARS, is_label=True, read=_password_read, default="")


class ImportFields(serializers.Serializer):
    format = Text(choices=("lightcone", "openai", "chatgpt"), is_required=True)
    text = Text(is_filled=True, is_required=True)
    first = Integer(minimum=1)


class FilterQuery(serializers.Serializer):
    model = Text(max_chars=MAX_MODEL_CHARS, is_label=True, default="")
    tag = Text(max_chars=MAX_TAG_CHARS, is_label=True, default="")
    has_tools = Boolean(default=False)
    since = Integer(minimum=0, maximum=LAST_SECOND)
    until = Integer(minimum=0, maximum=LAST_SECOND)


class HistoryQuery(FilterQuery):
    view = Text(choices=tuple(VIEWS), default="current")
    folder = Text(max_chars=MAX_FOLDER_CHARS, is_label=True, default="")
    limit = Integer(minimum=1, maximum=100, default=50)
    after = Text(read=id_read, default="")


class SearchQuery(FilterQuery):
    q = Text(max_chars=MAX_QUERY_CHARS, is_filled=True, is_required=True)
    limit = Integer(minimum=1, maximum=100, default=20)
    before = Integer(minimum=1, maximum=LAST_POSITION, default=LAST_POSITION)


class ExportQuery(serializers.Serializer):
    format = Text(choices=EXPORT_FORMATS, default="json")


class ExportSeveralFields(FilterQuery):
    format = Text(choices=EXPORT_FORMATS, is_required=True)
    ids = Array(id_read, max_items=MAX_IDS, if_empty="must name at least one conversation")
    q = Text(max_chars=MAX_QUERY_CHARS, default="")


CONVERSATION, CHANGE, TURN, IDS = ConversationFields(), ChangeFields(), TurnFields(), IdsFields()
LINK, IMPORT = LinkFields(), ImportFields()
CHANGE_SEVERAL, EXPORT_SEVERAL = ChangeSeveralFields(), ExportSeveralFields()
SENT_TURN, NEW_CONVERSATION, TURNS = SentTurnFields(), NewConversationFields(), TurnsFields()
HISTORY_QUERY, SEARCH_QUERY, EXPORT_QUERY = HistoryQuery(), SearchQuery(), ExportQuery()
FILTER_QUERY = FilterQuery()
TURN_FIELDS = tuple(TURN.fields)
OUTSIDE_BODY = ("id", "parent", "role", "state", "run")


def page_bounds() -> JsonBounds:
    """Return the bounds of a body, nested less deeply than requests of the API may be."""
    bounds = json_bounds()
    bounds.depth = min(bounds.depth, MAX_DEPTH)
    return bounds


def page_body_read(request: HttpRequest, schema: serializers.Serializer) -> dict[str, Any]:
    """Return the fields of a body. Raises ApiError."""
    return fields_read(schema, json_object_read(page_body(request), page_bounds()))


def page_body(request: HttpRequest) -> bytes:
    """Return a body of JSON, as it was sent. Raises ApiError."""
    body = body_read(request)
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_page_body_bytes
    if len(body) > limit:
        message = f"The request body is larger than the limit of {limit} bytes (LIGHTCONE_MAX_PAGE_BODY_BYTES)."
        raise ApiError("request_too_large", message, limit=limit, value=len(body))
    return body


def page_object_read(request: HttpRequest, max_bytes: int) -> dict[str, Any]:
    """Return the object of a body that is kept as it is. Raises ApiError."""
    body = body_read(request)
    if len(body) > max_bytes:
        message = f"This may take {max_bytes} bytes, got {len(body)}; shorten it."
        raise ApiError("request_too_large", message, limit=max_bytes, value=len(body))
    return json_object_read(body, page_bounds())


def query_read(request: HttpRequest, schema: serializers.Serializer) -> dict[str, Any]:
    """Return the fields of a query string, of several values the last. Raises ApiError."""
    return fields_read(schema, {name: value for name, value in request.GET.items() if name != "user"})


def fields_read(schema: serializers.Serializer, data: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return all fields of a schema, None or their defaults where they are absent. Raises ApiError.

    `place`: the path of the object in the body, empty for the body itself.
    """
    for name in data:
        if name not in schema.fields:
            path = f"{place}.{name[:64]}".lstrip(".")
            raise ApiError("unsupported_parameter", f"{path} is no field here; use {', '.join(schema.fields)}", path)
    try:
        values: dict[str, Any] = schema.run_validation(dict(data))
    except ValidationError as error:
        raise problems_error(field_problems(error.detail, place)) from None
    return values


def filters_take(values: dict[str, Any]) -> Filters:
    """Take the fields of filters out of those that were read. Raises ApiError."""
    taken = {name: values.pop(name) for name in FILTER_QUERY.fields}
    for name in ("since", "until"):
        taken[name] = None if taken[name] is None else datetime.fromtimestamp(taken[name], tz=UTC)
    if taken["since"] is not None and taken["until"] is not None and taken["since"] >= taken["until"]:
        raise ApiError("invalid_value", "until must be later than since, as it is not within", "until")
    return Filters(**taken)


def turn_body(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept in the body of a turn: the fields that are there."""
    return {name: value for name, value in values.items() if name not in OUTSIDE_BODY and value is not None}
