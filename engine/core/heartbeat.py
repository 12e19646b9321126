"""Heartbeats of the core, and how long its present step has lasted: the loop writes that, the heartbeat thread reads
it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from engine.core.link import CoreChannel
from engine.messages import Heartbeat

HEARTBEAT_S = 1.0


class StepWatch:
    """A stopwatch for the turns of the step loop. `clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_at: float | None = None

    def begin(self) -> None:
        """Begin a turn."""
        self._began_at = self._clock()

    def end(self) -> None:
        """End the turn; from now on the loop may wait for as long as it likes."""
        self._began_at = None

    @property
    def elapsed_s(self) -> float:
        """The duration of the present turn; 0 between two."""
        began_at = self._began_at
        return 0.0 if began_at is None else self._clock() - began_at


class HeartbeatThread:
    """A thread that sends heartbeats until it is stopped, also during a long step and while the model is loaded."""

    def __init__(self, channel: CoreChannel) -> None:
        self._channel = channel
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="core-heartbeat", daemon=True)
        self.watch = StepWatch()
        """The stopwatch to report; it stands still while the model is loaded."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more heartbeats. Does not wait for the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            self._channel.send(Heartbeat(time.time(), self.watch.elapsed_s))
