"""What all routes of this folder share: the name in the log, the header of the key, the shape of errors.

A route is a subclass that reads its own bodies.
"""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError
from engine.api import EngineError


class PromptsDoor:
    name = "prompts"
    key_header = "authorization"

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return {"error": error.described(), "message": error.message}

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        """A refusal of the engine in the names of the fields that were sent."""
        return error
