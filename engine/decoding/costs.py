"""The cost of a step by its number of rows, and the number of drafts that pays for its rows. Pure Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from operator import mul

MEASURED_ROWS, ROWS_OF_SLOW = (1, 2, 4, 8, 16, 32), (1, 8, 16)
SLOW_S = 0.02
"""From here on the time of one row is that of reading the weights, so that 2 and 4 rows cost hardly more: they are not
measured, so that such a model loads no later."""
FEW_ROWS = 8
MEASURING_S = 1.0
"""After this much time no more numbers of rows are measured, so that a large model loads no later."""
QUICK_S = 0.4
"""If the first round takes longer, more than FEW_ROWS rows are measured only once."""
LEAST_SECONDS = 1e-6
EVEN_ROWS = (2, 4, 6, 8, 12, 16, 20, *range(24, 1024, 8))
"""The numbers of rows that drafts fill a step up to. Products take rows in blocks of 8, 4, 2 and 1, and a small block
costs nearly or fully as much as the next larger one."""
MOST_DRAFTS = 31
"""The most drafts of a sequence in a step."""
GAIN = 1.08
"""Drafts must promise at least this factor: measured costs are noisy and leave out the draw from more rows."""


class StepCosts:
    """The relative cost of a step by its number of rows, each of which draws a token; interpolated and extrapolated."""

    def __init__(self, seconds: dict[int, float]) -> None:
        """`seconds` by number of rows, for at least two numbers.

        Noise only adds time, so fewer rows are taken to cost no more than was measured for more rows. A coarse clock
        can show zero for a small model.
        """
        self._rows = sorted(seconds)
        self._seconds = [
            max(LEAST_SECONDS, min(seconds[more] for more in self._rows[place:])) for place in range(len(self._rows))
        ]

    @classmethod
    def measure(cls, time_rows: Callable[[int], float], max_rows: int) -> StepCosts:
        """Measure with `time_rows(rows)`, which returns seconds, for at most `max_rows` rows, in up to three rounds."""
        seconds = {1: time_rows(1)}
        is_slow = seconds[1] >= SLOW_S and max_rows >= FEW_ROWS
        measured = [rows for rows in (ROWS_OF_SLOW if is_slow else MEASURED_ROWS) if rows <= max(max_rows, 2)]
        for rows in measured[1:]:
            if len(seconds) < 2 or sum(seconds.values()) < MEASURING_S:
                seconds[rows] = time_rows(rows)
        most = FEW_ROWS if sum(seconds.values()) > QUICK_S or is_slow else measured[-1]
        for _ in range(1 if is_slow else 2):  # in rounds, so that a disturbance spoils not all measurements of a number
            seconds |= {rows: min(seconds[rows], time_rows(rows)) for rows in seconds if rows <= most}
        return cls(seconds)

    @classmethod
    def flat(cls) -> StepCosts:
        """Return the costs of a device on which a few hundred rows cost about as much as one."""
        return cls({1: 1.0, 256: 1.5})

    def cost(self, rows: int) -> float:
        """Return the cost of a step, in the unit of `seconds`."""
        place = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        low, high = self._rows[place - 1], self._rows[place]
        below, above = self._seconds[place - 1], self._seconds[place]
        return below + (above - below) * (rows - low) / (high - low)

    def best_num_drafts(self, confidences: Iterable[float], num_rows: int, limit: int) -> int:
        """Return the number of drafts with which a step of `num_rows` rows yields most tokens per second.

        confidences: the probability that each draft is right if those before it are.
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
