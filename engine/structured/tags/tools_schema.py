"""Make the constraint of an answer with tools: calls under their schemas, content under a constraint, or either of
them.

The result is one `Constraint`, made at admission from the request and the format of the model's parser.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from engine.api.constraint import Constraint, ConstraintKind
from engine.api.errors import ErrorCode, RequestError
from engine.api.request import GenerationRequest, Tool, ToolMode
from engine.structured.schema.check import with_sub_schemas
from engine.structured.schema.resources import plain_references
from engine.structured.tags.source import root_node

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The parameters of a function that declares none."""

Node = dict[str, Any]


class CallFormat(Protocol):
    """The format of one call: `begin` NAME `middle` ARGUMENTS `end`; a decimal number and `number_end` may follow
    `middle`.
    """

    @property
    def trigger(self) -> str: ...
    @property
    def begin(self) -> str: ...
    @property
    def middle(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def number_end(self) -> str: ...
    @property
    def style(self) -> str: ...


class ToolFormat(Protocol):
    """The format of a parser. Either part may be unknown."""

    @property
    def start_marker(self) -> str | None: ...
    @property
    def call_format(self) -> CallFormat | None: ...


def answer_constraint(request: GenerationRequest, tool_format: ToolFormat | None) -> Constraint | None:
    """Return the constraint of the whole answer, None if it is free. A forced tool goes before a response format."""
    choice = request.tool_choice
    if choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED):
        return _forced(request)
    if choice.mode is not ToolMode.AUTO or not request.tools or tool_format is None or tool_format.start_marker is None:
        return request.constraint
    calls = _call_tags(request, tool_format.call_format)
    if request.constraint is not None:
        return _content_or_calls(request.constraint, tool_format.start_marker, tool_format.call_format, calls)
    if not calls or tool_format.call_format is None:
        return None
    format_ = {"type": "triggered_tags", "triggers": [tool_format.call_format.trigger], "tags": calls}
    return _tag(format_, request.tool_choice.whitespace, request.tool_choice.closes_objects, "tools")


def tool_schemas(tools: tuple[Tool, ...]) -> list[tuple[str, str]]:
    """Return the parameters of tools as JSON texts, each with the field that holds it."""
    return [
        (json.dumps(tool.parameters), _param(index)) for index, tool in enumerate(tools) if tool.parameters is not None
    ]


def blamed(error: RequestError, request: GenerationRequest, compile_one: Any) -> RequestError:
    """Return the error of a constraint of several tools, naming the tool whose schema cannot be enforced.

    Each is compiled alone.
    """
    for index, tool in enumerate(request.tools):
        if request.tool_choice.mode is ToolMode.AUTO and not tool.is_strict:
            continue
        choice = request.tool_choice
        schema = json.dumps(_parameters(tool))
        try:
            compile_one(
                Constraint(ConstraintKind.JSON_SCHEMA, schema, _param(index), choice.whitespace, choice.closes_objects)
            )
        except RequestError as found:
            return found
    return error


def _forced(request: GenerationRequest) -> Constraint:
    """Return the constraint of a forced call: an array of calls for `required`, the arguments for a named function."""
    choice = request.tool_choice
    places = [index for index, tool in enumerate(request.tools) if not choice.names or tool.name in choice.names]
    if not places:
        raise RequestError(ErrorCode.INVALID_VALUE, "tool_choice names no function of tools", "tool_choice")
    if choice.mode is ToolMode.NAMED:
        schema, param = _parameters(request.tools[places[0]]), _param(places[0])
    else:
        schema, param = _calls_schema([request.tools[index] for index in places], choice.is_parallel), "tools"
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema), param, choice.whitespace, choice.closes_objects)


def _calls_schema(tools: list[Tool], is_parallel: bool) -> dict[str, Any]:
    """Return the schema of an array of calls.

    Each tool's schema is a definition of its own, where its references begin.
    """
    definitions, calls = {}, []
    for index, tool in enumerate(tools):
        name = f"t{index}"
        definitions[name] = _rerooted(plain_references(_parameters(tool), "tools"), f"#/$defs/{name}")
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "parameters": {"$ref": f"#/$defs/{name}"}},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    bounds = {"minItems": 1} if is_parallel else {"minItems": 1, "maxItems": 1}
    return {"type": "array", "items": {"anyOf": calls}, **bounds, "$defs": definitions}


def _parameters(tool: Tool) -> Any:
    """Return the schema of arguments, which are an object whatever else it allows."""
    if tool.parameters is None:
        return NO_ARGUMENTS
    if not isinstance(tool.parameters, dict):
        return {"type": "object"}
    return tool.parameters | {"type": "object"}


def _rerooted(schema: Any, root: str) -> Any:
    """Return the schema with its plain references moved to its new place."""
    if not isinstance(schema, dict):
        return schema
    result = with_sub_schemas(schema, lambda part, _: _rerooted(part, root))
    if isinstance(schema.get("$ref"), str):
        result["$ref"] = root + schema["$ref"][1:]
    return result


def _call_tags(request: GenerationRequest, call_format: CallFormat | None) -> list[Node]:
    """Return the calls as tags, if some function is strict and the format is known.

    Other functions accept any arguments.
    """
    if call_format is None or not any(tool.is_strict for tool in request.tools):
        return []
    names = request.tool_choice.names
    return [_call_tag(tool, call_format) for tool in request.tools if not names or tool.name in names]


def _call_tag(tool: Tool, call_format: CallFormat) -> Node:
    if not tool.is_strict:
        content: Node = {"type": "any_text"} if call_format.end else _schema_node({"type": "object"}, call_format.style)
    else:
        content = _schema_node(_parameters(tool), call_format.style)
    if call_format.number_end:
        number = [{"type": "regex", "pattern": "[0-9]{1,4}"}, {"type": "const_string", "value": call_format.number_end}]
        content = {"type": "sequence", "elements": [*number, content]}
    return {
        "type": "tag",
        "begin": call_format.begin + tool.name + call_format.middle,
        "content": content,
        "end": call_format.end,
    }


def _schema_node(schema: Any, style: str) -> Node:
    return {"type": "json_schema", "json_schema": schema, "style": style}


def _content_or_calls(
    constraint: Constraint, marker: str, call_format: CallFormat | None, calls: list[Node]
) -> Constraint:
    """Return the constraint for content under its own constraint, or calls from the first token on."""
    opened: list[Node] = [{"type": "const_string", "value": marker}, {"type": "any_text"}]
    if calls and call_format is not None:
        more: Node = {"type": "triggered_tags", "triggers": [call_format.trigger], "tags": calls}
        first: Node = {"type": "or", "elements": calls}
        is_opening = call_format.begin.startswith(marker) or call_format.trigger == marker
        opened = [first, more] if is_opening else [{"type": "const_string", "value": marker}, more]
    either = {"type": "or", "elements": [_content_node(constraint), {"type": "sequence", "elements": opened}]}
    return _tag(either, constraint.whitespace, constraint.closes_objects, constraint.param)


def _content_node(constraint: Constraint) -> Node:
    """Return a constraint as a node of a structural tag.

    Raises RequestError for sources that are not JSON where they should be.
    """
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return {"type": "json_schema", "json_schema": {"type": "object"}}
        case ConstraintKind.REGEX:
            return {"type": "regex", "pattern": constraint.source}
        case ConstraintKind.GRAMMAR:
            return {"type": "grammar", "grammar": constraint.source}
    value = _json(constraint)
    if constraint.kind is ConstraintKind.JSON_SCHEMA:
        return {"type": "json_schema", "json_schema": value}
    if constraint.kind is ConstraintKind.CHOICE:
        return {"type": "or", "elements": [{"type": "const_string", "value": text} for text in value]}
    return root_node(value, constraint.param) if isinstance(value, dict) else {}


def _json(constraint: Constraint) -> Any:
    try:
        return json.loads(constraint.source)
    except (ValueError, RecursionError) as error:
        raise RequestError(ErrorCode.INVALID_VALUE, "not valid JSON", constraint.param) from error


def _tag(format_: Node, whitespace: str, closes_objects: bool, param: str) -> Constraint:
    source = json.dumps({"type": "structural_tag", "format": format_})
    return Constraint(ConstraintKind.STRUCTURAL_TAG, source, param, whitespace, closes_objects, has_control=True)


def _param(index: int) -> str:
    return f"tools.{index}.function.parameters"
