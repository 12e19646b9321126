"""Counts of requests that were refused for their API key.

A database row for each would let any client fill the database.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

LOG_EVERY_S = 60.0


class Refusals:
    """Counts by status: since the last `take`, and since the last log line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[int] = Counter()
        self._unlogged: Counter[int] = Counter()
        self._logged_at = -LOG_EVERY_S

    def add(self, counts: Mapping[int, int]) -> None:
        self._counts.update(counts)

    def note(self, status: int) -> None:
        """Count one refusal, and log the counts at most once a minute."""
        self._counts[status] += 1
        self._unlogged[status] += 1
        if self._clock() - self._logged_at >= LOG_EVERY_S:
            counts = ", ".join(f"{number} with {status}" for status, number in sorted(self._unlogged.items()))
            logger.warning("requests refused for their API key since the last such line: %s", counts)
            self._unlogged.clear()
            self._logged_at = self._clock()

    def take(self) -> dict[int, int]:
        """Return the counts since the last call."""
        counts = dict(self._counts)
        self._counts.clear()
        return counts


refusals = Refusals()
"""The counts of this process."""
