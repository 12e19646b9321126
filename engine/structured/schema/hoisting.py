"""Deep schemas made flat: what is nested far down becomes a definition of its own, as the library reads at most 128 brackets deep."""

from __future__ import annotations

from typing import Any

from engine.structured.schema.check import with_sub_schemas

MAX_LEVELS = 16
"""Levels in one piece. A level takes up to three brackets."""


def hoisted(root: Any) -> Any:
    """The equivalent schema in pieces, those beyond the first as `$defs` named `d0`, `d1`, …, which no rewritten schema has yet."""
    pieces: dict[str, Any] = {}

    def cut(schema: Any, levels: int) -> Any:
        """The schema, or a reference to it where it stands too deep."""
        if not isinstance(schema, dict):
            return schema
        is_far = levels >= MAX_LEVELS and schema.keys() != {"$ref"}
        result = with_sub_schemas(schema, lambda part, _: cut(part, 1 if is_far else levels + 1))
        if not is_far:
            return result
        name = f"d{len(pieces)}"
        pieces[name] = result
        return {"$ref": f"#/$defs/{name}"}

    result = cut(root, 0)
    return result | {"$defs": result.get("$defs", {}) | pieces} if pieces else result
