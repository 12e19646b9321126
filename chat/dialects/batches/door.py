"""What the routes of files and batches share: the key's header, and the shape of errors."""

from __future__ import annotations

from typing import Any

from chat.errors import ApiError


class BatchesDoor:
    name = "batches"
    key_header = "authorization"

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """As on all of `/v1`: the root-level message is what the TypeScript client shows."""
        return {"error": error.described(), "message": error.message}


BATCHES = BatchesDoor()
