"""A core in a thread of the caller's process. Imports torch.

engine = Engine(config, publish, connect=connect_in_process)
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable

from engine.config import EngineConfig
from engine.core.build import serve
from engine.core.link import LinkClosed
from engine.core.loop import EngineCore
from engine.decoding.costs import StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.messages import FromCore, Shutdown, ToCore
from engine.structured.core_grammars import CoreGrammars


def connect_in_process(config: EngineConfig) -> ThreadLink:
    """Start a core in a thread of this process."""
    return ThreadLink(dataclasses.replace(config, core_in_process=True), serve)


class NoAdapters:
    """The adapters of a step loop that is given none."""

    def expect(self, seq_id, adapter_id):
        assert not adapter_id

    def is_ready(self, adapter_id):
        return True

    def add(self, sequence):
        pass

    def remove(self, seq_id):
        pass


def make_core(scheduler, runner, sampler, channel, *, drafter=None, **options) -> EngineCore:
    """Return a step loop that is given no grammars or adapters, and no drafts unless by `drafter`."""

    def load_vocabulary():
        raise AssertionError("no sequence has a grammar")

    drafter = LookupDrafter(StepCosts.flat(), prompt_lookup=False) if drafter is None else drafter
    options = {"drafter": drafter, "grammars": CoreGrammars(load_vocabulary), "adapters": NoAdapters(), **options}
    return EngineCore(scheduler, runner, sampler, channel, **options)


class QueueChannel:
    """The core's end of an in-process link; the worker's end holds the same two queues."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[ToCore] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[FromCore | None] = queue.SimpleQueue()

    def send(self, message: FromCore) -> None:
        self.outbox.put(message)

    def receive(self, block: bool) -> list[ToCore]:
        messages = [self.inbox.get()] if block else []
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self.inbox.get_nowait())
        return messages


class ThreadLink:
    """The worker's end of a link to a core in a thread. `serve(config, channel)` returns after Shutdown."""

    pid: int | None = None

    def __init__(self, config: EngineConfig, serve: Callable[[EngineConfig, QueueChannel], None]) -> None:
        self._channel = QueueChannel()
        self._thread = threading.Thread(target=self._run, args=(config, serve), name="engine-core", daemon=True)
        self._thread.start()

    def send(self, message: ToCore) -> None:
        if not self._thread.is_alive():
            raise LinkClosed
        self._channel.inbox.put(message)

    def receive(self) -> FromCore:
        message = self._channel.outbox.get()
        if message is None:
            raise LinkClosed
        return message

    def close(self, timeout_s: float) -> None:
        self._channel.inbox.put(Shutdown())
        self._thread.join(timeout_s)

    def _run(self, config: EngineConfig, serve: Callable[[EngineConfig, QueueChannel], None]) -> None:
        try:
            serve(config, self._channel)
        finally:
            self._channel.outbox.put(None)
