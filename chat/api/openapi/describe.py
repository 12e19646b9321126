"""Describe routes for the OpenAPI document.

    SCHEMAS = components("Echo = {id, language: string}") | requests(EchoRequest)
    OPERATIONS = routes(
        "echo",
        \"""
        POST /v9/echo create_echo(EchoRequest) -> Echo stream EchoEvent raises 400 401 500
            Echo a text. Behind the first full stop begins the description.
        GET /v9/echo/{echo_id} retrieve_echo(limit) -> Echo
            One echo
        \""",
        query='limit: integer "1 to 100."',
        create_echo={"text": "a small body that works as it stands; the page offers to send it"},
    )

`lines` in place of `stream` stands for a stream of JSON objects, one a line. A module with these two names is listed in
`DialectEntry.described_in`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from chat.api.openapi.notation import PIECES, Schema, ref, shape
from chat.api.request.fields import fields_schema

JSON = "application/json"
COMPUTED = "400 401 402 403 404 408 413 429 500 503"
"""The errors of a route that computes: of those with a body, unless they name others."""
FETCHED = "400 401 403 404 429 500 503"
"""The errors of a route that reads the store: of all others."""
PAGING = """
    limit: integer "1 to 100, 20 where absent."; after: string "The id of the last entry of the page before.";
    order: 'asc' | 'desc'
"""
ROUTE = re.compile(
    r"(?P<route>[A-Z]+ /\S+) (?P<id>\w+)\((?P<form>form )?(?P<body>[A-Z]\w+)?(?P<query>.*?)\)(?: -> (?P<answer>\w+))?"
    r"(?: stream (?P<stream>\w+))?(?: lines (?P<lines>\w+))?"
    r"(?: raises (?P<errors>[\d ]+))? (?P<summary>.+?)(?:\. (?P<description>.+))?"
)


def requests(*serializers_: type[serializers.Serializer]) -> dict[str, Schema]:
    """Return the components of the bodies that serializers check."""
    return {serializer.__name__: fields_schema(serializer().fields) for serializer in serializers_}


def routes(
    tag: str,
    text: str,
    *,
    query: str = "",
    errors: str | None = None,
    error: str = "ErrorBody",
    needs_key: bool = True,
    **examples: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """Return the operations that a text describes, by method and path.

    `query` has the parameters that they may name, `errors` the statuses of those that name none, `examples` a body by
    the id of an operation.
    """
    known = _query_parameters(query)
    failed = {"description": "", "content": _content(JSON, error)}
    operations = {}
    for block in re.split(r"\n(?=\s*[A-Z]+ /)", text.strip()):
        match = ROUTE.fullmatch(" ".join(block.split()))
        if match is None:
            raise ValueError(f"not the description of a route: {block}")
        statuses = match["errors"] or errors
        if statuses is None:
            statuses = COMPUTED if match["body"] else FETCHED
        in_path = re.findall(r"{(\w+)}", match["route"])
        operation: dict[str, Any] = {
            "operationId": match["id"],
            "summary": match["summary"].removesuffix("."),
            "tags": [tag],
            "parameters": [
                *({"in": "path", "name": name, "required": True, "schema": PIECES["string"]} for name in in_path),
                *(known[name] for name in re.findall(r"\w+", match["query"])),
            ],
            "responses": {"200": _answer(match), **dict.fromkeys(statuses.split(), failed)},
        }
        if match["description"]:
            operation["description"] = match["description"]
        if match["body"]:
            content = _content("multipart/form-data" if match["form"] else JSON, match["body"])
            operation["requestBody"] = {"required": True, "content": content}
        if match["id"] in examples:
            operation["requestBody"]["content"][JSON]["example"] = examples[match["id"]]
        if needs_key:
            operation["security"] = [{"key": []}]
        operations[match["route"]] = operation
    return operations


def _query_parameters(text: str) -> dict[str, Schema]:
    parameters = {}
    for name, schema in shape(f"{{{text}}}")["properties"].items():
        described = {key: schema[key] for key in schema if key == "description"}
        rest = {key: schema[key] for key in schema if key != "description"}
        parameters[name] = {"in": "query", "name": name, "schema": rest, **described}
    return parameters


def _answer(match: re.Match[str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if match["answer"]:
        content |= _content("application/octet-stream" if match["answer"] == "binary" else JSON, match["answer"])
    if match["stream"]:
        content |= _content("text/event-stream", match["stream"])
    if match["lines"]:
        content |= _content("application/x-ndjson", match["lines"])
    return {"description": "", "content": content}


def _content(kind: str, name: str) -> dict[str, Any]:
    """Return content of this type, whose schema is a piece or a component."""
    return {kind: {"schema": PIECES.get(name) or ref(name)}}
