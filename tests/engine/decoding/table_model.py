"""A core over a table: logits depend on the last two tokens only, so that rows are exact in any batch."""

from __future__ import annotations

import torch

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.execution.prompts import PromptResults
from engine.messages import AddSequence, SequenceOutput, StepResult
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core

VOCAB_SIZE = 24
END = 23


class TableRunner:
    """A runner over a table of logits; `num_steps` and `num_rows` count its work."""

    def __init__(self, seed: int = 0, spread: float = 3.0) -> None:
        self._table = (
            torch.randn(VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * spread
        )
        self.num_steps = self.num_rows = 0

    def forward(self, plan):
        rows = []
        for chunk in plan.chunks:
            if chunk.samples:
                known = [0, *chunk.sequence.token_slice(0, chunk.sequence.num_tokens), *chunk.draft_ids]
                first = len(known) - 1 - len(chunk.draft_ids)
                rows += [self.logits(known[: place + 1]) for place in range(first, len(known))]
        self.num_steps += 1
        self.num_rows += len(rows)
        return torch.stack(rows) if rows else torch.zeros(0, VOCAB_SIZE)

    def prompt_results(self, plan):
        return PromptResults()

    def logits(self, known: list[int]) -> torch.Tensor:
        return self._table[known[-2], known[-1]].clone()


class TableCore:
    """A core that is fed with sequences and whose output is collected."""

    def __init__(
        self, drafter=None, num_blocks: int = 200, max_num_batched_tokens: int = 64, seed: int = 0, spread: float = 3.0
    ) -> None:
        self.runner = TableRunner(seed, spread)
        self.channel = QueueChannel()
        self.scheduler = Scheduler(num_blocks, 4, max_num_batched_tokens, 8, 100, True, drafter=drafter)
        known = drafter if hasattr(drafter, "add") else None
        self.core = make_core(self.scheduler, self.runner, Sampler(VOCAB_SIZE, "cpu"), self.channel, drafter=known)
        self.outputs: dict[int, list[SequenceOutput]] = {}

    def add(self, seq_id: int, prompt_ids: list[int], max_tokens: int = 20, **changes) -> None:
        fields = {
            "output_ids": [],
            "sampling": SamplingParams(temperature=0.0, seed=seq_id),
            "stop": StopRules(),
            "logprobs": LogprobOptions(),
            "stop_ids": [END],
            "cache_root": b"root",
        } | changes
        self.outputs[seq_id] = []
        message = AddSequence(seq_id=seq_id, prompt_ids=list(prompt_ids), max_tokens=max_tokens, **fields)
        assert self.core.handle_messages([message])

    def run(self) -> dict[int, list[SequenceOutput]]:
        """Step until nothing is left; check every count at the end."""
        while self.core.step():
            while not self.channel.outbox.empty():
                message = self.channel.outbox.get()
                assert isinstance(message, StepResult)
                for output in message.outputs:
                    self.outputs[output.seq_id].append(output)
        assert self.scheduler.check_integrity() == ""
        assert self.scheduler.stats().num_free_blocks == self.scheduler.stats().num_blocks
        return self.outputs

    def tokens(self, seq_id: int) -> list[int]:
        return [token_id for output in self.outputs[seq_id] for token_id in output.token_ids]
