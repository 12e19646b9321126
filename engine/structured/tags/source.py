"""Read structural tags, in the new form or the legacy one, into one checked tree of nodes: dicts with a `type`, keys as
published.

Node types: const_string {value}, json_schema {json_schema, style?}, qwen_xml_parameter {json_schema}, any_text
{excludes?}, regex {pattern}, grammar {grammar}, sequence and or {elements}, tag {begin, content, end}, triggered_tags
{triggers, tags, at_least_one?, stop_after_first?, excludes?}, tags_with_separator {tags, separator, at_least_one?,
stop_after_first?}.
"""

from __future__ import annotations

from typing import Any

from engine.config import StructuredLimits
from engine.structured.refusal import quote, refusal
from engine.structured.schema.json_text import read_json

Node = dict[str, Any]

STYLES = ("json", "qwen_xml", "glm_xml", "minimax_xml", "deepseek_xml")


def read_tag(source: str, limits: StructuredLimits, param: str) -> Node:
    """Return the node of a structural tag. Raises RequestError."""
    if not source.strip():
        raise refusal(param, "a structural tag must not be empty")
    tag = read_json(source, limits, param, depth=limits.tag_depth, what="a structural tag")
    if not isinstance(tag, dict):
        raise refusal(param, "a structural tag must be an object")
    node = root_node(tag, param)
    _Check(limits, param).node(node, "format")
    return node


def root_node(tag: Node, param: str) -> Any:
    """Return the node of a tag in either form, unchecked. Raises RequestError."""
    if "structures" in tag or "triggers" in tag:
        return _legacy(tag, param)
    return tag.get("format") if tag.get("type") == "structural_tag" else tag


def _legacy(tag: Node, param: str) -> Node:
    """Return `structures` and `triggers` as triggered tags."""
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not structures or not isinstance(triggers, list) or not triggers:
        raise refusal(
            param, "a structural tag must have a list of structures and a list of triggers, neither of them empty"
        )
    tags = []
    for structure in structures:
        if not isinstance(structure, dict):
            raise refusal(param, f"each of the structures must be an object, got {quote(structure)}")
        schema = structure.get("schema")
        content = {"type": "json_schema", "json_schema": True if schema is None else schema}
        tags.append({"type": "tag", "begin": structure.get("begin"), "content": content, "end": structure.get("end")})
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


class _Check:
    """A check of nodes, however deep. The depth of the text is bounded before."""

    def __init__(self, limits: StructuredLimits, param: str) -> None:
        self._limits = limits
        self._param = param
        self._num_nodes = 0

    def node(self, node: Any, where: str) -> None:
        self._num_nodes += 1
        self._require(
            self._num_nodes <= self._limits.schema_nodes, f"it has more than {self._limits.schema_nodes} nodes"
        )
        self._require(isinstance(node, dict), f"{where} must be an object")
        kind = node.get("type")
        match kind:
            case "const_string":
                self._require(
                    isinstance(node.get("value"), str) and node["value"] != "",
                    f"{where}.value must be a string, not empty",
                )
            case "json_schema" | "qwen_xml_parameter":
                self._require(isinstance(node.get("json_schema"), dict | bool), f"{where}.json_schema must be a schema")
                self._require(node.get("style", "json") in STYLES, f"{where}.style must be one of {', '.join(STYLES)}")
            case "regex":
                self._require(isinstance(node.get("pattern"), str), f"{where}.pattern must be a string")
            case "grammar":
                self._require(isinstance(node.get("grammar"), str), f"{where}.grammar must be a string")
            case "any_text":
                self._texts(node.get("excludes", []), f"{where}.excludes")
            case "sequence" | "or":
                self._nodes(node.get("elements"), f"{where}.elements")
            case "tag":
                self._tag(node, where)
            case "triggered_tags":
                self._triggered(node, where)
            case "tags_with_separator":
                self._tags(node, where)
                self._require(isinstance(node.get("separator"), str), f"{where}.separator must be a string")
            case _:
                raise refusal(
                    self._param, f"invalid structural tag: {where} is of type {quote(kind)}, which is not supported"
                )

    def _tag(self, node: Node, where: str) -> None:
        self._require(isinstance(node.get("begin"), str), f"{where}.begin must be a string")
        end = node.get("end")
        self._require(isinstance(end, str) or bool(end), f"{where}.end must be a string or a list of strings")
        if not isinstance(end, str):
            self._texts(end, f"{where}.end")
        self.node(node.get("content"), f"{where}.content")

    def _tags(self, node: Node, where: str) -> None:
        self._nodes(node.get("tags"), f"{where}.tags")
        self._require(all(tag["type"] == "tag" for tag in node["tags"]), f"{where}.tags must be tags")
        flags = [node.get(name, False) for name in ("at_least_one", "stop_after_first")]
        self._require(
            all(isinstance(flag, bool) for flag in flags), f"{where}.at_least_one and stop_after_first must be booleans"
        )

    def _triggered(self, node: Node, where: str) -> None:
        self._tags(node, where)
        triggers = node.get("triggers")
        self._texts(triggers, f"{where}.triggers")
        self._texts(node.get("excludes", []), f"{where}.excludes")
        self._require(bool(triggers), f"{where}.triggers must not be empty")
        for tag in node["tags"]:
            found = [trigger for trigger in node["triggers"] if tag["begin"].startswith(trigger)]
            self._require(
                len(found) == 1, f"the begin {quote(tag['begin'])} must start with exactly one of the triggers"
            )

    def _nodes(self, nodes: Any, where: str) -> None:
        self._require(isinstance(nodes, list) and nodes != [], f"{where} must be a list of at least one node")
        for index, node in enumerate(nodes):
            self.node(node, f"{where}.{index}")

    def _texts(self, texts: Any, where: str) -> None:
        is_texts = isinstance(texts, list) and all(isinstance(text, str) and text for text in texts)
        self._require(is_texts, f"{where} must be a list of strings, none of them empty")

    def _require(self, is_right: bool, message: str) -> None:
        if not is_right:
            raise refusal(self._param, f"invalid structural tag: {message}")
