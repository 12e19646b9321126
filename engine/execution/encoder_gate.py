"""The gate at which a thread that encodes media waits, between two parts of its model, while steps are computed.

The encoder and the steps each compute with all processors. If both computed at once, threads of one would often wait
for one of theirs whose processor the other has. So they alternate, and text streams beside an image lose the encoder's
share of the time and little more (benchmarks/LOG.md).
"""

from __future__ import annotations

import threading
from time import monotonic

SHARE = 0.15
"""Of the time, for the encoder while sequences are computed. It has all of it while none is."""
LEAST_S, MOST_S = 0.01, 0.1
"""The shortest time for which the encoder is let through beside steps, and the longest."""
PATIENCE_S = 0.05
"""How long the steps wait for the end of a part that takes longer. Then both compute, and the thread gives way."""


class EncoderGate:
    """Lets one thread at a time compute for a while. One thread calls `pass_through`; all else is the step loop's."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._is_waiting = False
        """The thread waits here."""
        self.is_over = True
        """No thread is expected."""
        self._is_open = False
        """Nobody waits here any more."""
        self._granted_s = 0.0
        """The seconds for which the thread may go on; 0 once it has taken them."""
        self._ends_at = 0.0
        """When the thread must wait here again."""
        self._credit_s = 0.0
        """What the encoder may compute beside steps; below 0 after a part that took longer than it had."""

    def begin(self) -> None:
        """Expect a thread, which will call `end`."""
        self.is_over, self._is_waiting, self._ends_at, self._credit_s = False, False, 0.0, 0.0

    def pass_through(self) -> None:
        """Wait here unless there is time left: called by the thread, between two parts of its computation."""
        if self._is_open or monotonic() < self._ends_at:
            return
        with self._changed:
            self._is_waiting = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open or self._granted_s > 0)
            self._is_waiting = False
            self._ends_at, self._granted_s = monotonic() + self._granted_s, 0.0

    def end(self) -> None:
        """Say that the thread has ended: called by it."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Let the thread compute for so long, as there is nothing else to do, or wait until it has ended."""
        self._credit_s = 0.0
        with self._changed:
            self._changed.wait_for(lambda: self._is_waiting or self.is_over, seconds)
        self._let_through(seconds)

    def compute_beside(self, step_s: float) -> None:
        """Let the thread compute after a step that took so long, if its share has become worth it."""
        if self.is_over:
            return
        self._credit_s = min(self._credit_s + step_s * SHARE / (1 - SHARE), MOST_S)
        if self._credit_s >= LEAST_S:
            self._credit_s -= self._let_through(self._credit_s)

    def open(self) -> None:
        """Let the thread compute to its end."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def _let_through(self, seconds: float) -> float:
        """Let the thread compute for so long, if it waits here; return the seconds until it waits again."""
        with self._changed:
            if not self._is_waiting:
                return 0.0
            began_at, self._granted_s, self._is_waiting = monotonic(), seconds, False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_waiting or self.is_over, seconds + self._patience_s)
            return monotonic() - began_at
