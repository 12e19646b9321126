"""What a worker host tells the live pages of itself, once a second."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Iterable
from typing import Any

from django.conf import settings

from chat.machine import DeviceState, device_state
from chat.relay.state.hosts import HOST_LIFE_MS, HostReport, host_fields
from chat.relay.state.keys import Keys
from chat.workers.last_lines import LastLines
from chat.workers.memory import UNLIMITED, process_memory

LOOK_S = 5.0
"""Between two looks at the device: nvidia-smi takes a while."""


class HostReporter:
    """A reporter of one host. `watch` looks at the device in a thread of its own; `report` only reads."""

    def __init__(self, node: str, *, device: str, budget: int) -> None:
        self._node = node
        self._device = device
        self._budget = 0 if budget >= UNLIMITED else budget
        self._state = DeviceState()
        self._process_bytes = 0
        self._started_at = time.time()
        self._version = str(settings.LIGHTCONE_VERSION)
        self.lines = LastLines()

    def watch(self, is_stopping: threading.Event) -> None:
        """Look at device and process until the host stops."""
        logging.getLogger().addHandler(self.lines)
        try:
            while not is_stopping.is_set():
                self._state = device_state(self._device)
                self._process_bytes = process_memory(os.getpid())
                is_stopping.wait(LOOK_S)
        finally:
            logging.getLogger().removeHandler(self.lines)

    def write(self, pipe: Any, keys: Keys, models: Iterable[str], *, held_bytes: int, is_draining: bool) -> None:
        """Add the report's commands to a pipeline, and forget hosts that have said nothing for HOST_LIFE_MS."""
        report = self.report(models, held_bytes=held_bytes, is_draining=is_draining)
        now_ms = int(report.beat_at * 1000)
        pipe.hset(keys.host(self._node), mapping=host_fields(report))
        pipe.pexpire(keys.host(self._node), HOST_LIFE_MS)
        pipe.zadd(keys.hosts, {self._node: now_ms})
        pipe.zremrangebyscore(keys.hosts, "-inf", now_ms - HOST_LIFE_MS)

    def report(self, models: Iterable[str], *, held_bytes: int, is_draining: bool) -> HostReport:
        """Return the report of this moment. `models`: whose last lines it has."""
        state = self._state
        found = {name: tuple(self.lines.of_model(name)) for name in models}
        return HostReport(
            node=self._node,
            machine=platform.node(),
            pid=os.getpid(),
            version=self._version,
            device=self._device,
            device_name=state.name,
            device_bytes=state.total_bytes,
            device_used_bytes=state.used_bytes,
            budget_bytes=self._budget,
            held_bytes=held_bytes,
            process_bytes=self._process_bytes,
            utilization=state.utilization,
            temperature=state.temperature,
            power_watts=state.power_watts,
            is_draining=is_draining,
            started_at=self._started_at,
            beat_at=time.time(),
            lines=tuple(self.lines.of_process()),
            model_lines={name: lines for name, lines in found.items() if lines},
        )
