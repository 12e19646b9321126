"""What all routes of this folder share. A route is a subclass that reads its own bodies."""

from __future__ import annotations

from typing import Any

from chat.api.dialect import OpenAIErrorFormat
from engine.api import EngineError


class PromptFormat(OpenAIErrorFormat):
    name = "prompts"

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        """A refusal of the engine in the names of the fields that were sent."""
        return error
