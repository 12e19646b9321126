"""The client's names for the fields of a translated request, for errors of all later steps."""

from __future__ import annotations

from collections.abc import Mapping

from chat.api.ollama.options import SENT_NAMES

FIELDS = {
    **{name: f"options.{option}" for name, option in SENT_NAMES.items()},
    "response_format": "format",
    "response_format.json_schema": "format",
    "response_format.json_schema.schema": "format",
    "structured_outputs": "format",
    "reasoning_effort": "think",
}
REASONING = ("reasoning", "reasoning_content")


class OllamaNames:
    """From a path of the one request schema to the one that was sent. `own`: paths of this request alone."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        self._sent = FIELDS | dict(own or {})

    def __call__(self, path: str) -> str:
        """Return the path that was sent, by the longest beginning of `path` that is known."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            sent = self._sent.get(".".join(parts[:end]))
            if sent is not None:
                return ".".join((sent, *parts[end:]))
        if parts[0] == "messages" and parts[-1] in REASONING:
            return ".".join((*parts[:-1], "thinking"))
        return path
