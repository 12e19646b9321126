"""Conversations of a ChatGPT export (`conversations.json`) as trees of messages. transfer.py stores them.

An export has a `mapping` of nodes by id, each with a message or none, its parent and its children, and names the
`current_node`. What has no text here, such as images, is named and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("system", "user", "assistant", "tool")


@dataclass(slots=True)
class Node:
    """A message of an export. `parent` is the last message before it that has a text, empty for a first one."""

    id: str
    parent: str
    role: str
    text: str
    model: str


@dataclass(slots=True)
class Export:
    """The messages of a conversation, parents first, the last one that was shown, and the names of what is left out."""

    nodes: list[Node] = field(default_factory=list)
    head: str = ""
    unknown: list[str] = field(default_factory=list)


def chatgpt_read(plain: Mapping[str, Any]) -> Export:
    """Return the tree of one conversation of an export; empty if it has no message."""
    mapping = plain.get("mapping")
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)} if isinstance(mapping, dict) else {}
    export = Export()
    kept_as: dict[str, str] = {}
    """The last message with a text up to each node."""
    for key, parent in _parents_first(nodes):
        before = kept_as.get(parent, "")
        node = _message(export, key, before, nodes[key].get("message"))
        kept_as[key] = node.id if node else before
        if node:
            export.nodes.append(node)
    if len(kept_as) < len(nodes):
        export.unknown.append("mapping nodes in a circle")
    export.head = kept_as.get(str(plain.get("current_node")), "")
    return export


def _parents_first(nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each node that hangs from a first one, with its parent."""
    children: dict[str, list[str]] = {}
    for key, node in nodes.items():
        parent = node.get("parent")
        children.setdefault(parent if isinstance(parent, str) and parent in nodes else "", []).append(key)
    waiting = [(key, "") for key in reversed(children.get("", []))]
    while waiting:
        key, parent = waiting.pop()
        yield key, parent
        waiting += [(child, key) for child in reversed(children.get(key, []))]


def _message(export: Export, key: str, parent: str, message: Any) -> Node | None:
    if not isinstance(message, dict):
        return None
    author, metadata = _object(message.get("author")), _object(message.get("metadata"))
    role, model = author.get("role"), metadata.get("model_slug")
    text = _text(export, message.get("content"))
    if metadata.get("attachments"):
        export.unknown.append("attachments")
    if not text or metadata.get("is_visually_hidden_from_conversation"):
        return None
    if role not in ROLES:
        export.unknown.append(f"author.role {str(role)[:32]}")
        return None
    return Node(key, parent, role, text, model if isinstance(model, str) else "")


def _text(export: Export, content: Any) -> str:
    """Return the text of a message, and note its parts that are none."""
    content = _object(content)
    kind, parts = str(content.get("content_type")), content.get("parts")
    if kind in ("code", "execution_output"):
        return str(content.get("text") or "")
    if not isinstance(parts, list):
        export.unknown.append(f"content_type {kind[:32]}")
        return ""
    for part in parts:
        if not isinstance(part, str):
            export.unknown.append(f"part {str(_object(part).get('content_type'))[:32]}")
    return "\n\n".join(part for part in parts if isinstance(part, str) and part.strip())


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
