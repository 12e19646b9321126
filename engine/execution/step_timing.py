"""The time of a step of one sequence by its rows, measured at load; engine.decoding.costs weighs drafts with it.

Measures the recorded programs that will run, over a cache that holds a context. Only the ratios of the times matter, so
one thread computes and its processor time counts, which other load on the machine does not affect.
"""

from __future__ import annotations

from time import thread_time

import torch

from engine.attention.torch_cpu import TorchCpuAttention
from engine.execution.dummy_batch import dummy_batch
from engine.execution.step_programs import StepPrograms
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.models.decoder import Decoder


class StepTimer:
    """A timer of steps.

    Uses the first blocks of the cache, and its own programs, as these depend on the number of threads.
    """

    def __init__(self, decoder: Decoder, attention: TorchCpuAttention, max_tokens: int) -> None:
        """`max_tokens`: the longest context that the cache and the model's positions allow."""
        self._decoder = decoder
        self._attention = attention
        self._max_tokens = max_tokens
        self._programs = StepPrograms(decoder, attention, max_tokens)
        self._num_steps = 0

    @torch.inference_mode()
    def __call__(self, num_rows: int) -> float:
        """Return the seconds of a step that computes so many tokens and the logits after each."""
        with KERNEL_THREADS.single_threaded():
            self._programs.prepare(num_rows)
            start = thread_time()
            self._run(num_rows)
            return thread_time() - start

    def _run(self, num_rows: int) -> None:
        """Compute a step of other tokens at other positions than the one before."""
        self._num_steps += 1
        batch = dummy_batch(self._num_steps, num_rows, self._max_tokens, self._attention.block_size)
        hidden = self._programs.forward(batch)
        if hidden is None:
            hidden = self._decoder.forward(batch.token_ids, batch.positions, self._attention.begin_step(batch.layout))
        self._decoder.logits(hidden)
