"""The vocabulary in which routes describe themselves for the OpenAPI document: an `Operation` for each method, and JSON
Schemas.

    SCHEMAS = {"Echo": obj({"language": TEXT}, id=TEXT, text=text("As sent."))}
    OPERATIONS = (
        Operation("POST /v9/echo", "create_echo", "Echo a text. Answers with it.", body=body_of(EchoRequest),
        answer="Echo"),
    )

A module with these two names and `TAG`, the heading of its routes, is listed in `DialectEntry.described_in`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from chat.api.request.fields import fields_schema

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
SECONDS: Schema = {"type": "integer", "description": "Unix seconds."}
COMPUTED = (400, 401, 402, 403, 404, 408, 413, 429, 500, 503)
"""The errors of a route that computes."""
FETCHED = (400, 401, 403, 404, 429, 500, 503)
"""The errors of a route that reads the store."""


def obj(optional: Mapping[str, Schema] | None = None, **required: Schema) -> Schema:
    """Return the schema of an object with these properties."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def many(schema: Schema, names: str) -> dict[str, Schema]:
    """Return the properties of these names, which have one schema."""
    return dict.fromkeys(names.split(), schema)


def text(description: str) -> Schema:
    """Return the schema of a string."""
    return {**TEXT, "description": description}


def one_of(*values: str | None) -> Schema:
    """Return the schema of one of some strings."""
    return {"type": ["string", "null"] if None in values else "string", "enum": list(values)}


def array(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    """Return the schema of such a value or null."""
    if "type" in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"oneOf": [schema, NULL]}


def query(name: str, schema: Schema = TEXT, description: str = "") -> Schema:
    """Return the description of a query parameter."""
    return {"in": "query", "name": name, "schema": schema, **({"description": description} if description else {})}


PAGING = (
    query("limit", INTEGER, "1 to 100, 20 where absent."),
    query("after", TEXT, "The id of the last entry of the page before."),
    query("order", one_of("asc", "desc")),
)


@dataclass(frozen=True, slots=True)
class Body:
    """The JSON body of a request, described by the fields that check it."""

    name: str
    fields: Mapping[str, Any]
    """From a name to a `RequestField`."""
    example: Mapping[str, Any]
    """A small body that works as it stands. The page of the API offers to send it."""

    def schema(self) -> Schema:
        return fields_schema(self.fields)


def body_of(serializer: type[serializers.Serializer], **example: Any) -> Body:
    """Return the body that a serializer checks."""
    return Body(serializer.__name__, serializer().fields, example)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one route.

    `errors` are by default those of a route that computes, if it has a body, else of one that reads.
    """

    route: str
    """Method and path: "GET /v1/models/{model_id}"."""
    id: str
    text: str
    """The summary, and behind the first ". " the description."""
    body: Body | None = None
    form: Schema | None = None
    """The body of a form, instead of `body`."""
    answer: str = ""
    """The name of the schema of a JSON answer."""
    stream: str = ""
    """The name of the schema of each event of a stream."""
    answer_type: str = "application/json"
    parameters: tuple[Schema, ...] = ()
    errors: tuple[int, ...] | None = None
    error: str = "ErrorBody"
    needs_key: bool = True
    tag: str = ""
    """The heading of this route, where it is not `TAG` of its module."""
