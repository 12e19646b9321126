"""What the routes of files and batches share."""

from __future__ import annotations

from chat.dialects.door import OpenAIDoor


class BatchesDoor(OpenAIDoor):
    name = "batches"


BATCHES = BatchesDoor()
