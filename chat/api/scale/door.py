"""What all routes of this folder share: where Scale's clients put the key, the account they name, and how they read errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.door import OpenAIDoor
from chat.errors import ApiError


class ScaleDoor(OpenAIDoor):
    name = "scale"
    key_header = "x-api-key"
    header_limits: Mapping[str, int] = {"x-selected-account-id": 128}
    """The account opens nothing."""

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return {**super().error_body(error), "detail": error.message}
