"""Read `tools`, `tool_choice`, and the deprecated `functions` and `function_call` into `Tool` and `ToolChoice`.

Checks shapes, names and sizes. The worker compiles `parameters`, and refuses a schema that cannot be enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import orjson
from django.conf import settings
from rest_framework.exceptions import ValidationError
from rest_framework.fields import empty

from chat.api.openapi.notation import one_of, shape
from chat.api.request.constraints import schema_text
from chat.api.request.fields import Array, Boolean, Object, Record, RequestField, Text, echo, read_at, refuse
from engine.api import Json, Tool, ToolChoice, ToolMode

LIMITS = settings.LIGHTCONE_LIMITS
MODES = {"none": ToolMode.NONE, "auto": ToolMode.AUTO, "required": ToolMode.REQUIRED}
CHOICE_FORMS = "none, auto, required or an object that names a function"
MAX_HOPS = 100
"""The most references and branches to follow."""
NOWHERE = object()


class Parameters(Object):
    """The JSON Schema of a function's arguments. It must admit an object, as arguments are one."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        schema: dict[str, Any] = super().to_internal_value(data)
        schema_text(schema)
        kinds = schema.get("type", "object")
        if not isinstance(kinds, str | list):
            raise refuse("invalid_type", f"must be a string or an array of strings, got {echo(kinds)}", "type")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise refuse("invalid_value", "must be object: the arguments of a function are an object", "type")
        properties = schema.get("properties")
        if properties is not None and not isinstance(properties, dict):
            raise refuse("invalid_type", f"must be an object, got {echo(properties)}", "properties")
        for name, value in (properties or {}).items():
            if not isinstance(value, dict | bool):
                raise refuse("invalid_type", f"must be a JSON Schema, got {echo(value)}", f"properties.{name}")
        object_check(schema)
        return schema


def _name() -> Text:
    return Text(max_chars=LIMITS.max_label_chars, is_filled=True, is_label=True, is_required=True)


class Function(Record):
    """A function. Reads to a Tool whose `spec` has the known keys that were sent."""

    parts = {"name": _name(), "description": Text(), "parameters": Parameters(), "strict": Boolean(default=False)}

    def to_internal_value(self, data: Any) -> Tool:
        values = super().to_internal_value(data)
        shown: dict[str, Json] = {
            name: values[name] for name in ("name", "description", "parameters") if values[name] is not None
        }
        spec: dict[str, Json] = {"type": "function", "function": shown}
        return Tool(values["name"], values["parameters"], values["strict"], spec)


class ToolObject(Record):
    """One entry of `tools`, with or without `type`. Reads to the Tool of its function."""

    parts = {
        "type": Text("The only kind.", choices=("function",)),
        "function": Function(is_required=True),
    }

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(data)["function"]


class Tools(Array):
    """Functions that the model may call. Reads to a tuple of Tool. `path` leads to the name of an entry."""

    def __init__(self, entry: Record, path: str, **kwargs: Any) -> None:
        super().__init__(entry.run_validation, item_schema=entry.schema_object(), max_items=LIMITS.max_tools, **kwargs)
        self.path = path

    def to_internal_value(self, data: Any) -> tuple[Tool, ...]:
        tools: list[Tool] = super().to_internal_value(data)
        names: set[str] = set()
        for index, tool in enumerate(tools):
            if tool.name in names:
                raise refuse("invalid_value", f"must be unique, got {echo(tool.name)} again", f"{index}.{self.path}")
            names.add(tool.name)
        num_bytes = sum(len(orjson.dumps(tool.spec)) for tool in tools)
        if num_bytes > LIMITS.max_tool_bytes:
            message = f"must be at most {LIMITS.max_tool_bytes} bytes long together, got {num_bytes}"
            raise refuse("invalid_value", message)
        return tuple(tools)


class NamedFunction(Record):
    parts = {"name": _name()}


class NamedTool(Record):
    parts = {"type": Text(choices=("function",)), "function": NamedFunction(is_required=True)}


NAMED_FUNCTION = NamedFunction(nullable=False)
NAMED_TOOL = NamedTool(nullable=False)


class AllowedTools(Record):
    parts = {
        "mode": Text(choices=("auto", "required"), is_required=True),
        "tools": Array(
            NAMED_TOOL.run_validation,
            item_schema={"type": "object"},
            max_items=LIMITS.max_tools,
            if_empty="must have at least one item",
            is_required=True,
        ),
    }


ALLOWED_TOOLS = AllowedTools(is_required=True)


class ToolChoiceField(RequestField):
    """A mode, one function, or a mode over some functions. Reads to a ToolChoice, whose names may be unknown."""

    json_schema = {
        "oneOf": [
            one_of(*MODES),
            NAMED_TOOL.json_schema,
            shape("{type: 'allowed_tools'; allowed_tools: allowed_tools}", allowed_tools=ALLOWED_TOOLS.json_schema),
        ]
    }

    def to_internal_value(self, data: Any) -> ToolChoice:
        return tool_choice_read(data)


def tool_choice_read(data: Any) -> ToolChoice:
    """Return the choice of a `tool_choice` that is not null, whatever the tools are. Raises ValidationError."""
    if isinstance(data, str):
        if data not in MODES:
            raise refuse("invalid_value", f"must be {CHOICE_FORMS}; got {echo(data)}")
        return ToolChoice(MODES[data])
    if not isinstance(data, dict):
        raise refuse("invalid_type", f"must be {CHOICE_FORMS}; got {echo(data)}")
    kind = data.get("type")
    if kind == "allowed_tools":
        allowed = read_at("allowed_tools", ALLOWED_TOOLS.run_validation, data.get("allowed_tools", empty))
        return ToolChoice(MODES[allowed["mode"]], tuple(entry["function"]["name"] for entry in allowed["tools"]))
    if kind not in (None, "function"):
        raise refuse("invalid_value", f"must be function or allowed_tools, got {echo(kind)}", "type")
    if "function" not in data:
        message = "is required: name a function, or send none, auto or required"
        raise refuse("missing_required_parameter", message, "function")
    named = read_at("function", NAMED_FUNCTION.run_validation, data["function"])
    return ToolChoice(ToolMode.NAMED, (named["name"],))


class FunctionCallField(RequestField):
    """`none`, `auto` or `{name}`. Reads to a ToolChoice."""

    json_schema = {"oneOf": [one_of("none", "auto"), NAMED_FUNCTION.json_schema]}

    def to_internal_value(self, data: Any) -> ToolChoice:
        return function_call_read(data)


def function_call_read(data: Any) -> ToolChoice:
    """Return the choice of a `function_call` that is not null. Raises ValidationError."""
    if isinstance(data, dict):
        return ToolChoice(ToolMode.NAMED, (NAMED_FUNCTION.run_validation(data)["name"],), is_parallel=False)
    if data not in ("none", "auto"):
        code = "invalid_value" if isinstance(data, str) else "invalid_type"
        raise refuse(code, f"must be none, auto or an object with a name; got {echo(data)}")
    return ToolChoice(MODES[data], is_parallel=False)


def is_forced(choice: ToolChoice) -> bool:
    """Return True if the answer must be a call."""
    return choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED)


def raw_names(tools: Any, path: tuple[str, ...]) -> set[str] | None:
    """Return the names in an unchecked list of tools; None if it or an entry is malformed, which is then the error."""
    names: set[str] = set()
    if not isinstance(tools, list):
        return None
    for tool in tools:
        value = tool
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, str):
            return None
        names.add(value)
    return names


def raw_choice(body: Mapping[str, Any]) -> ToolChoice:
    """Return the choice of an unchecked body; mode NONE if it cannot be read."""
    try:
        if body.get("tool_choice") is not None:
            return tool_choice_read(body["tool_choice"])
        if body.get("function_call") is not None:
            return function_call_read(body["function_call"])
    except ValidationError:
        pass
    return ToolChoice()


# Whether a schema admits an object. A schema that cannot be judged is taken to admit one.


def object_check(root: dict[str, Any]) -> None:
    """Check that a JSON Schema admits an object, as that of a function's arguments must; its members do not count.

    Raises ValidationError at the keyword at fault, also for a reference that leads nowhere.
    """
    reference = root.get("$ref")
    if isinstance(reference, str) and reference.startswith(("#/", "#%2F")) and _target(root, reference) is NOWHERE:
        raise refuse("invalid_value", f"leads nowhere in the schema: {echo(reference)}", "$ref")
    for name in ("$ref", "type", "const", "enum", "allOf", "anyOf", "oneOf"):
        if name in root and not _Search(root).admits({name: root[name]}):
            raise refuse("invalid_value", "must admit an object: the arguments of a function are one", name)


class _Search:
    """A search that looks at each schema once. A schema that leads back to itself is taken to admit an object there."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, bool] = {}

    def admits(self, schema: Any, hops: int = MAX_HOPS) -> bool:
        if not isinstance(schema, dict) or hops == 0:
            return schema is not False
        if id(schema) not in self._known:
            self._known[id(schema)] = True
            self._known[id(schema)] = _says_object(schema) and self._inner_admit(schema, hops - 1)
        return self._known[id(schema)]

    def _inner_admit(self, schema: dict[str, Any], hops: int) -> bool:
        """Check the reference, all branches of `allOf`, and one branch of `anyOf` and of `oneOf`."""
        reference = schema.get("$ref")
        if isinstance(reference, str) and not self.admits(_target(self._root, reference), hops):
            return False
        if not all(self.admits(branch, hops) for branch in _branches(schema, "allOf")):
            return False
        choices = [branches for name in ("anyOf", "oneOf") if (branches := _branches(schema, name))]
        return all(any(self.admits(branch, hops) for branch in branches) for branches in choices)


def _says_object(schema: dict[str, Any]) -> bool:
    types = schema.get("type", "object")
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    has_object = not isinstance(values, list) or any(isinstance(value, dict) for value in values)
    return has_object and "object" in (types if isinstance(types, list) else [types])


def _branches(schema: dict[str, Any], name: str) -> list[Any]:
    branches = schema.get(name)
    return branches if isinstance(branches, list) else []


def _target(root: dict[str, Any], reference: str) -> Any:
    """Return the schema that a JSON pointer leads to; {} for references of other kinds, which may be anything."""
    pointer = unquote(reference[1:])
    if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
        return {}
    node: Any = root
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        elif isinstance(node, dict) and step in node:
            node = node[step]
        else:
            return NOWHERE
    return node
