"""Turn the tools of a response into functions of a chat: functions, and those that a `namespace` groups.

The client runs functions. Tools that only OpenAI's servers run, or whose calls are not JSON (`custom`), are left out of
the prompt and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chat.api.request.fields import bad_value, echo
from chat.errors import ApiError

Tool = dict[str, Any]
FUNCTION_KEYS = ("name", "description", "parameters", "strict")
ECHOED_KEYS = ("type", "name", "description", "parameters")
NAMESPACE = "namespace"


@dataclass(slots=True)
class OfferedTools:
    """The tools of a request: the chat's functions with their `paths`, what the response repeats, names of the rest."""

    functions: list[Tool] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    echoed: list[Tool] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def joined_name(namespace: str | None, name: str) -> str:
    """Return the name by which the model knows a function of a namespace."""
    return f"{namespace}__{name}" if namespace else name


def split_names(echoed: Sequence[Tool]) -> dict[str, tuple[str, str]]:
    """Return namespace and name by the name that the model knows, for the tools that a response repeats."""
    groups = [tool for tool in echoed if tool["type"] == NAMESPACE]
    return {
        joined_name(group["name"], tool["name"]): (group["name"], tool["name"])
        for group in groups
        for tool in group["tools"]
    }


def tools_read(tools: Sequence[Any]) -> OfferedTools:
    """Return the tools to offer to the model. Raises ApiError."""
    offered = OfferedTools()
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        kind = _kind(tool, path)
        if kind == "function":
            offered.echoed.append(_function(tool, path, None, offered))
        elif kind == NAMESPACE:
            offered.echoed.append(_namespace(tool, path, offered))
        else:
            offered.ignored.append(f"{path}:{kind}")
    return offered


def _kind(tool: Any, path: str) -> str:
    if not isinstance(tool, dict):
        raise _mistyped(path, "an object", tool)
    kind = tool.get("type")
    if kind is None:
        raise ApiError("missing_required_parameter", f"{path}.type is required", f"{path}.type")
    if not isinstance(kind, str):
        raise _mistyped(f"{path}.type", "a string", kind)
    return kind


def _mistyped(path: str, wanted: str, value: Any) -> ApiError:
    return bad_value(path, f"must be {wanted}, got {echo(value)}", "invalid_type")


def _namespace(group: Tool, path: str, offered: OfferedTools) -> Tool:
    name, tools = group.get("name"), group.get("tools")
    if not isinstance(name, str) or not name:
        raise _mistyped(f"{path}.name", "a name", name)
    description = group.get("description")
    if not isinstance(description, str | None):
        raise _mistyped(f"{path}.description", "a string", description)
    if not isinstance(tools, list):
        raise _mistyped(f"{path}.tools", "an array", tools)
    echoed = []
    for index, tool in enumerate(tools):
        place = f"{path}.tools.{index}"
        kind = _kind(tool, place)
        if kind == "function":
            echoed.append(_function(tool, place, name, offered))
        else:
            offered.ignored.append(f"{place}:{kind}")
    return {"type": NAMESPACE, "name": name, "description": description, "tools": echoed}


def _function(tool: Tool, path: str, namespace: str | None, offered: OfferedTools) -> Tool:
    """Offer one function, and return what the response repeats of it."""
    function = {name: tool[name] for name in FUNCTION_KEYS if name in tool}
    if isinstance(function.get("name"), str):
        function["name"] = joined_name(namespace, function["name"])
    offered.functions.append({"type": "function", "function": function})
    offered.paths.append(path)
    return {**{name: tool.get(name) for name in ECHOED_KEYS}, "strict": bool(tool.get("strict"))}


def choice_read(choice: Any) -> Any:
    """Return the chat's form of a `tool_choice`. Raises ApiError if it names a tool that is no function."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function":
        name, namespace = choice.get("name"), choice.get(NAMESPACE)
        if isinstance(name, str) and isinstance(namespace, str):
            name = joined_name(namespace, name)
        return {"type": "function", "function": {"name": name}}
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        named = [choice_read(tool) for tool in tools] if isinstance(tools, list) else tools
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": named}}
    message = (
        "tool_choice.type must be function or allowed_tools, as this server runs no tools of its own; "
        f"got {echo(choice.get('type'))}"
    )
    raise ApiError("unsupported_parameter", message, "tool_choice.type")


def choice_echo(choice: Any) -> Any:
    """Return a checked choice with its known keys alone; others may be nested too deeply to be written."""
    if not isinstance(choice, Mapping):
        return choice or "auto"
    if choice["type"] == "allowed_tools":
        tools = [choice_echo(tool) for tool in choice["tools"]]
        return {"type": "allowed_tools", "mode": choice["mode"], "tools": tools}
    namespace = {NAMESPACE: choice[NAMESPACE]} if isinstance(choice.get(NAMESPACE), str) else {}
    return {"type": "function", "name": choice["name"], **namespace}
