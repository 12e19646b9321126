"""What the Scale paths answer as long as no route is served there: 401 without a key, else 404, in Scale's shape."""

from __future__ import annotations

from typing import Any

from chat.dialects.scale.errors import error_body
from chat.dialects.view import unknown_view
from chat.errors import ApiError


class Scale:
    name = "scale"
    key_header = "x-api-key"

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error_body(error)


SCALE = Scale()
unknown_route = unknown_view(SCALE)
