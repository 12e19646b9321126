"""Write arguments of a call that a model writes as tags, one per parameter: strings as they are, other values as JSON.

`engine.outputs.tools.parameters` reads them back by the declared types. Both must agree on what is a string.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.structured.refusal import quote, refusal

Node = dict[str, Any]
Schema = dict[str, Any]

MAX_HOPS = 16
"""The most references and alternatives that are followed for a parameter's types."""


@dataclass(frozen=True, slots=True)
class XmlStyle:
    """The style of one format.

    A parameter is `begin` NAME `middle` VALUE `end`; `text_middle` is the middle before a string.
    """

    begin: str
    middle: str
    end: str
    text_middle: str


STYLES = {
    "qwen_xml": XmlStyle("<parameter=", ">", "</parameter>", ">"),
    "glm_xml": XmlStyle("<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</arg_key><arg_value>"),
    "minimax_xml": XmlStyle('<parameter name="', '">', "</parameter>", '">'),
    "deepseek_xml": XmlStyle(
        '<｜DSML｜parameter name="', '" string="false">', "</｜DSML｜parameter>", '" string="true">'
    ),
}


def xml_parameters(schema: Any, style_name: str, param: str) -> list[Node]:
    """Return nodes for the properties of a rewritten schema, in its order; optional ones may be missing.

    Raises RequestError.
    """
    if not isinstance(schema, dict) or "object" not in _types(schema, "object"):
        raise refusal(param, "parameters that are written as tags must have a schema of an object")
    style = STYLES[style_name]
    required = set(schema.get("required", ()))
    unknown = required - set(schema.get("properties", {}))
    if unknown or any(name in schema for name in ("anyOf", "allOf", "$ref", "enum", "const")):
        raise refusal(
            param,
            "parameters that are written as tags must be listed in properties, without anyOf, "
            "allOf or $ref around them",
        )
    nodes = []
    for name, value in schema.get("properties", {}).items():
        if value is False:
            continue
        written = {"type": "sequence", "elements": _parameter(name, value, schema.get("$defs"), style, param)}
        nodes.append(
            written if name in required else {"type": "or", "elements": [written, {"type": "sequence", "elements": []}]}
        )
    return nodes


def _parameter(name: str, schema: Any, definitions: Any, style: XmlStyle, param: str) -> list[Node]:
    branches = list(_branches(schema, definitions or {}, MAX_HOPS))
    if any(map(_may_be_text, branches)):
        return [
            _constant(style.begin + name + style.text_middle),
            _text(name, branches, style, param),
            _constant(style.end),
        ]
    written = {"type": "json_schema", "rewritten": schema | ({"$defs": definitions} if definitions else {})}
    return [_constant(style.begin + name + style.middle), written, _constant(style.end)]


def _text(name: str, branches: list[Schema], style: XmlStyle, param: str) -> Node:
    """Return the node of a value that may be a string: its text as it is, which the reader takes for another type if it
    fits one.
    """
    if all(branch.keys() <= {"type"} for branch in branches):
        return {"type": "any_text"}
    values = [value for branch in branches for value in _values(branch)]
    if style.text_middle != style.middle:
        values = [value for value in values if value is not None]
    texts = ["null" if value is None else value for value in values]
    if not all(isinstance(text, str) and text.strip("\n") == text != "" and style.end not in text for text in texts):
        raise refusal(
            param,
            f"parameter {quote(name)} is written as a tag: a string in it can be held to enum or const only; "
            "remove its other keywords",
        )
    return {"type": "or", "elements": list(map(_constant, dict.fromkeys(texts)))}


def _branches(schema: Any, definitions: Schema, hops: int) -> Iterator[Schema]:
    """Yield the schemas of which a value satisfies one, behind pure references and alternatives."""
    schema = {} if schema is True else schema
    if schema is False:
        return
    if hops and schema.keys() == {"$ref"}:
        yield from _branches(definitions[schema["$ref"].rpartition("/")[2]], definitions, hops - 1)
    elif hops and schema.keys() == {"anyOf"}:
        for branch in schema["anyOf"]:
            yield from _branches(branch, definitions, hops - 1)
    else:
        yield schema


def _may_be_text(schema: Schema) -> bool:
    if "enum" in schema or "const" in schema:
        return any(isinstance(value, str) for value in _values(schema))
    if "type" in schema:
        return "string" in _types(schema, "")
    return all(_may_be_text(part) for part in schema.get("allOf", ()) if isinstance(part, dict))


def _values(schema: Schema) -> list[Any]:
    """Return the values that a schema lists; a value that is no text if it lists none or says more than that."""
    if not schema.keys() <= {"type", "enum", "const"}:
        return [0]
    if "enum" not in schema and "const" not in schema:
        return [None] if schema.get("type") in ("null", ["null"]) else [0]
    types = _types(schema, "string") if "type" in schema else ["string", "null"]
    listed = [schema["const"]] if "const" in schema else schema["enum"]
    return [value for value in listed if not isinstance(value, str) or "string" in types]


def _constant(text: str) -> Node:
    return {"type": "const_string", "value": text}


def _types(schema: Schema, default: str) -> list[str]:
    types = schema.get("type", default)
    return [types] if isinstance(types, str) else list(types)
