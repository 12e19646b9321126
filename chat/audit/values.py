"""What of a row enters an audit entry: plain values of the fields that differ, with secrets masked and texts cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from chat.masking import escape_controls, mask_secrets

Values = Mapping[str, Any]

SECRET = re.compile(r"password|secret|digest|pepper|credential|(^|_)token$|api_key$", re.ASCII)
"""Names of fields whose values are never written."""
PROMPTS = frozenset(("system_prompt",))
"""Names of fields of which the length alone is written, as what models are told is in no log."""
HIDDEN = "***"
MAX_CHARS = 500
MAX_ITEMS = 100


def row_values(row: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a row by name."""
    return {name: getattr(row, name) for name in names}


def differing(before: Values, after: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of both that differ; one that the other lacks does."""
    missing = object()
    names = [name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)]
    return {name: before[name] for name in names if name in before}, {
        name: after[name] for name in names if name in after
    }


def masked(values: Values) -> dict[str, Any]:
    """Return values as they are stored."""
    return {text_stored(str(name)): _masked(str(name), value) for name, value in values.items()}


def text_stored(text: str) -> str:
    """Return a text with keys masked, and without what databases cannot store."""
    return mask_secrets(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8"))


def line_stored(text: str) -> str:
    """Return a text of one line."""
    return escape_controls(text_stored(text))


def _masked(name: str, value: Any) -> Any:
    if value in (None, "", [], {}):
        return value
    if SECRET.search(name):
        return HIDDEN
    if name in PROMPTS:
        return f"({len(str(value)):,} characters)"
    return _plain(name, value)


def _plain(name: str, value: Any) -> Any:
    match value:
        case bool() | int() | float() | None:
            return value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {text_stored(str(key)): _masked(str(key), one) for key, one in list(value.items())[:MAX_ITEMS]}
        case list() | tuple() | set() | frozenset():
            some = [_masked(name, one) for one in list(value)[:MAX_ITEMS]]
            return [*some, f"… ({len(value):,})"] if len(value) > MAX_ITEMS else some
        case _:
            text = text_stored(str(value))
            return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}… ({len(text):,} characters)"
