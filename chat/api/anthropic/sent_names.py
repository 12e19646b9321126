"""The names of fields as they were sent, for errors that know them as the one request schema names them."""

from __future__ import annotations

import re

from chat.api.request.refusals import refusal_renamed
from engine.api import EngineError

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
COUNTS = re.compile(r"This model's maximum context length is (\d+) tokens.*\((\d+) in the ")


class SentNames:
    """Filled while a request is translated; `reword` then speaks of what was sent."""

    def __init__(self) -> None:
        self._sent = dict(FIELDS)

    def note(self, path: str, sent: str) -> None:
        """What stands at `path` of the translated request came from `sent`."""
        self._sent[path] = sent

    def of(self, path: str) -> str:
        """The path that was sent, by the longest beginning of `path` that is known."""
        path = TOOL_PARTS.sub(lambda match: match[1] + (".input_schema" if match[2] else ""), path)
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            sent = self._sent.get(".".join(parts[:end]))
            if sent is not None:
                return ".".join((sent, *parts[end:]))
        return path

    def reword(self, error: EngineError) -> EngineError:
        """The same error with the names that were sent, and of a prompt that is too long in the words that clients look for."""
        renamed = refusal_renamed(error, self.of)
        counts = COUNTS.match(renamed.message) if renamed.param == "messages" else None
        if counts is None:
            return renamed
        return type(renamed)(
            renamed.code,
            f"prompt is too long: {counts[2]} tokens > {counts[1]} maximum. {renamed.message}",
            renamed.param,
        )
