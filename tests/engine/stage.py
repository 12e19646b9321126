"""An engine over scripted cores, with its publications."""

import dataclasses
import queue

from engine.api import GenerationRequest
from engine.config import EngineConfig
from engine.engine import Engine
from engine.inputs.rendering import LocalRenderer
from engine.messages import SequenceOutput
from tests.engine.scripted_core import READY, ScriptedCore


class Stage:
    """An engine over scripted cores and a fixed clock, with all publications."""

    def __init__(self, folder, *cores, **config):
        self.now = 100.0
        self.cores = list(cores) or [ScriptedCore(READY)]
        self.core = self.cores[0]
        waiting = iter(self.cores)
        self._published = queue.SimpleQueue()
        config = EngineConfig(folder, "tiny", max_num_seqs=4, **config)
        self.engine = Engine(
            config,
            self._published.put,
            connect=lambda _: next(waiting),
            clock=lambda: self.now,
            renderer=LocalRenderer(),
        )

    def submit(self, run_id="run", text="hi", resume=None, **changes):
        request = GenerationRequest(run_id, "tiny", ({"role": "user", "content": text},), arrived_at=99.0)
        self.engine.submit(dataclasses.replace(request, **changes), resume)

    def publication(self):
        """Return the next publication: run ids with their events."""
        return {run.run_id: list(run.events) for run in self._published.get(timeout=20)}

    def events_to_end(self, run_id="run"):
        events = []
        while not (events and events[-1].is_terminal):
            events += self.publication().get(run_id, [])
        return events

    def has_no_publication(self):
        return self._published.empty()


def output(sequence, token_ids=(), finish=None, **more):
    return SequenceOutput(sequence.seq_id, list(token_ids), finish=finish, **more)


def check_positions(events):
    for before, after in zip(events, events[1:], strict=False):
        assert before.start + before.count == after.start
    return events


def payloads(events):
    return [event.payload for event in check_positions(events)]
