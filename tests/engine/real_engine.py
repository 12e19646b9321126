"""A whole engine on a small random float32 model, with the core in this process."""

from __future__ import annotations

import dataclasses
import queue
from pathlib import Path

import torch

from engine.api import ChoiceFinished, Delta, GenerationRequest
from engine.config import EngineConfig
from engine.engine import Engine
from engine.inputs.rendering import LocalRenderer
from tests.engine.in_process import connect_in_process
from tests.engine.random_model import random_model
from tests.engine.tiny_tokenizer import VOCAB_SIZE, write_tokenizer


def write_model(folder: Path, spread: float = 0.4):
    """Write a random Llama with the tiny tokenizer; return the transformers model.

    A larger `spread` gives clearer next tokens.
    """
    write_tokenizer(folder)
    model = random_model(seed=3, spread=spread, vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=64)
    model.save_pretrained(folder)
    return model


class RealEngine:
    """A running engine on one thread, as more threads cost time on small models. `close` checks the block counts."""

    def __init__(self, folder: Path, **config) -> None:
        settings = {
            "weights": "float32",
            "max_num_batched_tokens": 64,
            "max_num_seqs": 8,
            "kv_cache_bytes": 4 << 20,
        }
        self._num_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.patience_s = 60.0
        """How long `publication` waits."""
        self._published: queue.SimpleQueue = queue.SimpleQueue()
        self.engine = Engine(
            EngineConfig(folder, "tiny", **settings | config),
            self._published.put,
            connect=connect_in_process,
            renderer=LocalRenderer(),
        )
        self.engine.start()

    def answer(self, text="hi", resume=None, **changes):
        """Return the payloads of one request."""
        return [event.payload for event in self.events(text, resume, **changes)]

    def events(self, text="hi", resume=None, **changes):
        self.submit("run", text, resume, **changes)
        return self.events_to_end("run")["run"]

    def submit(self, run_id, text="hi", resume=None, **changes):
        request = GenerationRequest(run_id, "tiny", ({"role": "user", "content": text},), arrived_at=0.0)
        self.engine.submit(dataclasses.replace(request, **changes), resume)

    def publication(self):
        """Return the next publication."""
        return self._published.get(timeout=self.patience_s)

    def events_to_end(self, *run_ids):
        """Return all events of these runs."""
        events = {run_id: [] for run_id in run_ids}
        while not all(found and found[-1].is_terminal for found in events.values()):
            for run in self.publication():
                events[run.run_id] += run.events
        return events

    def core_stats(self):
        return self.engine.stats(check_integrity=True).core

    def close(self):
        torch.set_num_threads(self._num_threads)
        stats = self.core_stats()
        assert stats.integrity == ""
        assert stats.num_free_blocks == stats.num_blocks
        self.engine.close()


def tokens_of(payloads, choice=0):
    return [
        token_id
        for payload in payloads
        if isinstance(payload, Delta) and payload.choice == choice
        for token_id in payload.token_ids
    ]


def text_of(payloads, choice=0):
    return "".join(
        payload.text for payload in payloads if isinstance(payload, Delta | ChoiceFinished) and payload.choice == choice
    )


def finishes_of(payloads):
    return [payload for payload in payloads if isinstance(payload, ChoiceFinished)]
