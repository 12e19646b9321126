"""The heartbeats of a core's process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.core.link import PipeChannel
from engine.messages import Heartbeat

if TYPE_CHECKING:
    from engine.core.encoder_loop import EncoderCore
    from engine.core.loop import EngineCore
    from engine.core.speech_loop import SpeechCore

HEARTBEAT_S = 1.0
IMPORT_LIMIT_S = 1800.0
"""How long a core may import and compile: after that it counts as silent."""


class HeartbeatThread(threading.Thread):
    """A thread that sends heartbeats, at most for `limit_s`, also during a long step and while the model is loaded."""

    def __init__(self, channel: PipeChannel, limit_s: float = float("inf")) -> None:
        super().__init__(name="core-heartbeat", daemon=True)
        self._channel = channel
        self._most = limit_s / HEARTBEAT_S
        self.stopped = threading.Event()
        self.core: EngineCore | EncoderCore | SpeechCore | None = None
        """None while the model is loaded."""

    def run(self) -> None:
        sent = 0
        while sent < self._most and not self.stopped.wait(HEARTBEAT_S):
            sent += 1
            self._channel.send(Heartbeat(self.core.turn_s if self.core is not None else 0.0))
