"""What a step costs by the tokens that it draws, and how many drafts are worth their rows. Pure Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from operator import mul

MEASURED_ROWS = (1, 2, 4, 8, 16, 32)
FEW_ROWS = 8
MEASURING_S = 1.0
"""When steps took so long together, no more rows are measured: a large model is loaded no later for their sake."""
QUICK_S = 0.4
"""When they took longer, many rows are measured once."""
LEAST_SECONDS = 1e-6
EVEN_ROWS = (2, 4, 6, 8, 12, 16, 20, *range(24, 1024, 8))
"""Numbers of rows that steps with drafts are brought to: products take rows in blocks of 8, 4, 2 and 1, and a small block costs nearly
or fully what the next larger one does."""
MOST_DRAFTS = 31
"""Of a sequence."""
GAIN = 1.08
"""Drafts must promise this factor at least: costs are measured with some noise, and drawing from more rows is not in them."""


class StepCosts:
    """Relative cost of a step of so many rows, each drawing a token: straight lines between what was measured, and on beyond it."""

    def __init__(self, seconds: dict[int, float]) -> None:
        """`seconds` by rows, of at least two numbers of rows. What more rows were done in, fewer take no longer: noise only adds.

        None of them is taken as zero, which a coarse clock says of a small model.
        """
        self._rows = sorted(seconds)
        self._seconds = [
            max(LEAST_SECONDS, min(seconds[more] for more in self._rows[place:])) for place in range(len(self._rows))
        ]

    @classmethod
    def measure(cls, time_rows: Callable[[int], float], max_rows: int) -> StepCosts:
        """`time_rows(rows)` gives seconds: the best of three rounds, of one for many rows of a slow model; never above `max_rows`."""
        measured = [rows for rows in MEASURED_ROWS if rows <= max(max_rows, 2)]
        seconds: dict[int, float] = {}
        for rows in measured:
            if len(seconds) < 2 or sum(seconds.values()) < MEASURING_S:
                seconds[rows] = time_rows(rows)
        most = FEW_ROWS if sum(seconds.values()) > QUICK_S else measured[-1]
        for _ in range(2):  # in rounds, so that a disturbance does not hit one number of rows alone
            seconds |= {rows: min(seconds[rows], time_rows(rows)) for rows in seconds if rows <= most}
        return cls(seconds)

    @classmethod
    def flat(cls) -> StepCosts:
        """Of a device on which a few hundred rows cost what one does."""
        return cls({1: 1.0, 256: 1.5})

    def cost(self, rows: int) -> float:
        """In the unit of `seconds`."""
        place = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        low, high = self._rows[place - 1], self._rows[place]
        below, above = self._seconds[place - 1], self._seconds[place]
        return below + (above - below) * (rows - low) / (high - low)

    def best_num_drafts(self, confidences: Iterable[float], num_rows: int, limit: int) -> int:
        """How many drafts make a step of `num_rows` rows yield most per second; 0 where they do not pay.

        confidences: how likely each draft is right if those before it are.
        """
        gains = [0.0, *accumulate(accumulate(confidences, mul))]
        best, best_rate = 0, GAIN * num_rows / self.cost(num_rows)
        most = min(limit, len(gains) - 1, MOST_DRAFTS)
        even = EVEN_ROWS[bisect_right(EVEN_ROWS, num_rows) : bisect_left(EVEN_ROWS, num_rows + most)]
        for length in (*(rows - num_rows for rows in even), most):
            rate = (num_rows + gains[length]) / self.cost(num_rows + length)
            if rate > best_rate:
                best, best_rate = length, rate
        return best
