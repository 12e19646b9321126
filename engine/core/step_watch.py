"""How long the present turn of the step loop has lasted. Written by the loop, read by the thread that sends heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable


class StepWatch:
    """`clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_at: float | None = None

    def begin(self) -> None:
        """A turn begins."""
        self._began_at = self._clock()

    def end(self) -> None:
        """The turn has ended; the loop may wait now for as long as it likes."""
        self._began_at = None

    @property
    def elapsed_s(self) -> float:
        """0 between turns."""
        began_at = self._began_at
        return 0.0 if began_at is None else self._clock() - began_at
