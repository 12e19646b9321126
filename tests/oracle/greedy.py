"""Run prompts greedily through the whole core, and compare each token with transformers' choice."""

from dataclasses import replace
from functools import lru_cache

import torch

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.execution.runner import ModelRunner
from engine.loading.loader import LoadedModel
from engine.messages import AddSequence, QueryStats, StepResult
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from tests.engine.in_process import QueueChannel, make_core


class CoreUnderTest:
    """A core on a loaded model, stepped by hand; prefix cache and blocks live as long as it does."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, num_blocks: int = 0):
        config = replace(config, kv_cache_bytes=config.kv_cache_bytes or 64 << 20)
        self._channel = QueueChannel()
        runner = ModelRunner(loaded, config)
        num_blocks = num_blocks or runner.num_blocks
        self._scheduler = Scheduler(
            num_blocks,
            config.block_size,
            config.max_num_batched_tokens,
            config.max_num_seqs,
            100,
            config.prefix_caching,
            groups=runner.groups,
        )
        self._core = make_core(self._scheduler, runner, Sampler(loaded.config.vocab_size, "cpu"), self._channel)
        self._num_added = 0

    def answers(self, prompts: list[list[int]], num_tokens: int, stagger: int = 0) -> list[list[int]]:
        """Return output ids of prompts that run together; with `stagger` each joins that many steps after the one
        before.
        """
        outputs: dict[int, list[int]] = {}
        waiting = list(prompts)
        steps = 0
        while waiting or self.is_busy():
            while waiting and steps >= stagger * (len(prompts) - len(waiting)):
                outputs[self._add(waiting.pop(0), num_tokens)] = []
            self._core.step()
            steps += 1
            self._collect(outputs)
        return list(outputs.values())

    def is_busy(self) -> bool:
        stats = self._scheduler.stats()
        return bool(stats.num_running or stats.num_waiting)

    def stats(self):
        """Return the core's counters, with the integrity of its blocks checked."""
        self._core.handle_messages([QueryStats(check_integrity=True)])
        return self._channel.outbox.get()

    def _add(self, prompt_ids: list[int], max_tokens: int) -> int:
        self._num_added += 1
        message = AddSequence(
            seq_id=self._num_added,
            prompt_ids=prompt_ids,
            output_ids=[],
            sampling=SamplingParams(temperature=0.0, seed=0),
            stop=StopRules(),
            logprobs=LogprobOptions(),
            stop_ids=[],
            max_tokens=max_tokens,
            cache_root=b"",
        )
        self._core.handle_messages([message])
        return self._num_added

    def _collect(self, outputs: dict[int, list[int]]) -> None:
        while not self._channel.outbox.empty():
            message = self._channel.outbox.get()
            assert isinstance(message, StepResult)
            for output in message.outputs:
                assert output.finish in (None, "length"), output
                outputs[output.seq_id] += output.token_ids


def disagreements(reference: torch.nn.Module, prompt_ids: list[int], output_ids: list[int]) -> list[tuple[int, float]]:
    """Return the positions where greedy search with the reference model would choose another token, and the margins.

    One pass over prompt and output suffices: if the argmax after each prefix is the next token, autoregressive search
    gives exactly these tokens. The same answer to the same prompt is judged once.
    """
    return _judged(reference, tuple(prompt_ids), tuple(output_ids))


@lru_cache(maxsize=64)
@torch.inference_mode()
def _judged(reference: torch.nn.Module, prompt_ids: tuple[int, ...], output_ids: tuple[int, ...]):
    logits = reference(torch.tensor([prompt_ids + output_ids])).logits[0, len(prompt_ids) - 1 : -1]
    best, choice = logits.max(-1)
    chosen = logits[torch.arange(len(output_ids)), torch.tensor(output_ids)]
    differs = (choice != torch.tensor(output_ids)).nonzero()[:, 0].tolist()
    return [(position, float(best[position] - chosen[position])) for position in differs]
