"""What the routes of files and batches share."""

from __future__ import annotations

from chat.api.door import OpenAIDoor


class BatchesDoor(OpenAIDoor):
    name = "batches"


BATCHES = BatchesDoor()
