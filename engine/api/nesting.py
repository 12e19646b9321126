"""Counts the levels of nesting of a JSON Schema or structural tag.

The web process and the worker use the same count.
"""

from __future__ import annotations

from typing import Any

MAPS_OF_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})

BRACKETS_PER_LEVEL = 3
"""The most brackets of one level: of an object, of a map from names in it, and of a list in that."""


def is_deeper(value: Any, max_levels: int) -> bool:
    """Return True if objects are nested more than `max_levels` levels.

    Maps from names to schemas, and lists in objects, do not count as levels.
    """
    waiting = [(value, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > max_levels:
            return True
        if isinstance(value, list):
            waiting += [(item, depth + isinstance(item, list)) for item in value if isinstance(item, dict | list)]
            continue
        if not isinstance(value, dict):
            continue
        for name, item in value.items():
            items = item.values() if name in MAPS_OF_SCHEMAS and isinstance(item, dict) else (item,)
            waiting += [(inner, depth + 1) for inner in items if isinstance(inner, dict | list)]
    return False
