"""Arguments of a call that a model writes as tags, one per parameter: strings as they are, other values as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.structured.refusal import refusal

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class XmlStyle:
    """A parameter is `begin` NAME `middle` VALUE `end`; `text_middle` is the middle before a string."""

    begin: str
    middle: str
    end: str
    text_middle: str


STYLES = {
    "qwen_xml": XmlStyle("<parameter=", ">", "</parameter>", ">"),
    "glm_xml": XmlStyle("<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</arg_key><arg_value>"),
    "minimax_xml": XmlStyle('<parameter name="', '">', "</parameter>", '">'),
    "deepseek_xml": XmlStyle('<｜DSML｜parameter name="', '" string="false">', "</｜DSML｜parameter>", '" string="true">'),
}


def xml_parameters(schema: Any, style_name: str, param: str) -> list[Node]:
    """Nodes for the properties of a rewritten schema, in its order; optional ones may be missing. Raises RequestError."""
    if not isinstance(schema, dict) or "object" not in _types(schema, "object"):
        raise refusal(param, "parameters that are written as tags must have a schema of an object")
    style = STYLES[style_name]
    required = set(schema.get("required", ()))
    unknown = required - set(schema.get("properties", {}))
    if unknown or any(name in schema for name in ("anyOf", "allOf", "$ref", "enum", "const")):
        raise refusal(param, "parameters that are written as tags must be listed in properties, without anyOf, allOf or $ref around them")
    nodes = []
    for name, value in schema.get("properties", {}).items():
        if value is False:
            continue
        written = {"type": "sequence", "elements": _parameter(name, value, schema.get("$defs"), style)}
        nodes.append(written if name in required else {"type": "or", "elements": [written, {"type": "sequence", "elements": []}]})
    return nodes


def _parameter(name: str, schema: Any, definitions: Any, style: XmlStyle) -> list[Node]:
    is_text = isinstance(schema, dict) and _types(schema, "") == ["string"] and not {"enum", "const", "pattern", "format"} & schema.keys()
    begin = style.begin + name + (style.text_middle if is_text else style.middle)
    value: Node = {"type": "any_text"}
    if not is_text:
        schema = schema if isinstance(schema, dict) else {}
        value = {"type": "json_schema", "rewritten": schema | ({"$defs": definitions} if definitions else {})}
    return [{"type": "const_string", "value": begin}, value, {"type": "const_string", "value": style.end}]


def _types(schema: dict[str, Any], default: str) -> list[str]:
    types = schema.get("type", default)
    return [types] if isinstance(types, str) else list(types)
