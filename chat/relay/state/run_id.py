"""Run ids: UUIDs of version 7 (RFC 9562), whose first 48 bits are the unix time in milliseconds.

Sorting by run id is sorting by time, so one primary key serves look-up, newest-first paging and ranges of time.
"""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from uuid import UUID


def run_id_create(*, at_s: float | None = None) -> str:
    """Return a new run id as 32 hex digits. `at_s`: unix seconds, now when absent."""
    milliseconds = int((time.time() if at_s is None else at_s) * 1000)
    return UUID(
        int=(milliseconds << 80) | (0x7 << 76) | (secrets.randbits(12) << 64) | (0b10 << 62) | secrets.randbits(62)
    ).hex


def run_id_floor(at: datetime) -> UUID:
    """Return the smallest value that a run id of this instant, or a later one, can have."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)
