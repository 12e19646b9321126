"""The client's names for the fields of a translated message, for errors of all later steps."""

from __future__ import annotations

import re

FIELDS = {
    "stop": "stop_sequences",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "tool_choice.function.name": "tool_choice.name",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
}
TOOL_PARTS = re.compile(r"(tools\.\d+)\.function(?:\.(parameters))?(?=\.|\Z)")


class MessageNames:
    """The names that a request used. Filled while it is translated; call it with a path of the one request schema."""

    def __init__(self) -> None:
        self._sent = dict(FIELDS)

    def note(self, path: str, sent: str) -> None:
        """Note that the value at `path` of the translated request came from `sent`."""
        self._sent[path] = sent

    def __call__(self, path: str) -> str:
        """Return the path that was sent, by the longest beginning of `path` that is known."""
        path = TOOL_PARTS.sub(lambda match: match[1] + (".input_schema" if match[2] else ""), path)
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            sent = self._sent.get(".".join(parts[:end]))
            if sent is not None:
                return ".".join((sent, *parts[end:]))
        return path
