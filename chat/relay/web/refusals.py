"""Requests that were refused for their key: counted, as a row for each would let anybody fill the database."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

LOG_EVERY_S = 60.0


class Refusals:
    """Counts of this process, by status: those that were not taken yet, and those that no log line has told yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: Counter[int] = Counter()
        self._untold: Counter[int] = Counter()
        self._told_at = -LOG_EVERY_S

    def add(self, counts: Mapping[int, int]) -> None:
        self._counts.update(counts)

    def note(self, status: int) -> None:
        """Count one, and say now and then in the log how many there were."""
        self._counts[status] += 1
        self._untold[status] += 1
        if self._clock() - self._told_at >= LOG_EVERY_S:
            told = ", ".join(f"{number} with {status}" for status, number in sorted(self._untold.items()))
            logger.warning("requests refused for their API key since the last such line: %s", told)
            self._untold.clear()
            self._told_at = self._clock()

    def take(self) -> dict[int, int]:
        """What has been counted since the last call."""
        counts = dict(self._counts)
        self._counts.clear()
        return counts


refusals = Refusals()
"""Of this process."""
