"""Time answers with and without drafts: scheduler, runner, sampler and verifier in this process; no HTTP, no worker.

    python benchmarks/speculation.py --model PATH [--tokens 160] [--rounds 5] [--streams 1,8]
        [--weights auto] [--processor-time]

Workloads: `copy` repeats a text of the prompt, `edit` repeats it with a name replaced, `plain` writes a new story,
`predicted` writes that story with itself as the prediction. Each runs without and with drafts in turn; rates are those
of the fastest round, prompts left out. Greedy. With `--weights auto` row counts may have different forms, and answers
may differ; in float32 they must not. `--processor-time` counts the time of one thread that computes alone, for a
machine that others use too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.config import EngineConfig
from engine.decoding.costs import StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from engine.messages import AddSequence, StepResult
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from engine.tokenizers.tokenizer import Tokenizer
from tests.engine.in_process import QueueChannel, make_core

TEXT = (
    "On Monday the committee met in the old library to talk about the repair of the bridge. Anna Keller, who had drawn "
    "the first plans, explained why the northern arch could not carry lorries any longer, and showed photographs of "
    "the cracks. The mayor asked what a new arch would cost. Anna said that nobody could know before the winter, "
    "because the stone had to be tested first. In the end they agreed to close the bridge to all heavy traffic, to put "
    "up signs on both banks of the river, and to meet again in the last week of November."
)
PROMPTS = {
    "copy": f"Here is a report:\n\n{TEXT}\n\nHere is the same report once more, word for word:\n\n{TEXT[:84]}",
    "edit": f"Here is a report:\n\n{TEXT}\n\n"
    f"Here it is again, with Maria Weber in place of Anna Keller:\n\n{TEXT[:84]}",
    "plain": "A story for children about a fox who wanted to learn to swim.\n\n"
    "Once upon a time, in a forest by a lake,",
}


class Bench:
    """One loaded model, and a core with drafts or without over it."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        loaded = load_model(config.model_path, weights=config.weights, batch_invariant=config.batch_invariant)
        self._runner = ModelRunner(loaded, config)
        self._vocab_size = loaded.config.vocab_size
        started = perf_counter()
        self.costs = StepCosts.measure(self._runner.step_timer(), self._runner.max_model_len)
        self.measured_s = perf_counter() - started
        self._num_added = 0

    def answer(
        self,
        prompts: list[list[int]],
        num_tokens: int,
        drafter: LookupDrafter | None,
        predicted: list[int] | None = None,
    ) -> Answer:
        """Decode all prompts side by side, from the moment when each has its first token."""
        channel = QueueChannel()
        config, runner = self._config, self._runner
        scheduler = Scheduler(
            runner.num_blocks,
            config.block_size,
            runner.max_num_batched_tokens,
            config.max_num_seqs,
            99,
            prefix_caching=False,
            groups=runner.groups,
            drafter=drafter,
        )
        core = make_core(scheduler, runner, Sampler(self._vocab_size, "cpu"), channel, drafter=drafter)
        for number, prompt in enumerate(prompts):
            fields = {
                "sampling": SamplingParams(temperature=0.0),
                "stop": StopRules(),
                "logprobs": LogprobOptions(),
                "cache_root": b"",
            }
            message = AddSequence(
                number, prompt, output_ids=[], stop_ids=[], max_tokens=num_tokens, draft_ids=predicted or [], **fields
            )
            core.handle_messages([message])
        result = Answer([[] for _ in prompts])
        started = 0.0
        while core.step():
            result.num_steps += 1
            while not channel.outbox.empty():
                message = channel.outbox.get()
                for output in message.outputs if isinstance(message, StepResult) else []:
                    result.tokens[output.seq_id] += output.token_ids
            if not started and all(result.tokens):
                started, result.num_steps = self._clock(), 0
                result.num_before = sum(map(len, result.tokens))
        result.seconds = self._clock() - started
        return result


class Answer:
    """The tokens of each stream, and the steps and seconds of decoding after `num_before` tokens."""

    def __init__(self, tokens: list[list[int]]) -> None:
        self.tokens = tokens
        self.num_steps = self.num_before = 0
        self.seconds = 0.0

    @property
    def rate(self) -> float:
        return (sum(map(len, self.tokens)) - self.num_before) / self.seconds


def common_tokens(first: list[list[int]], second: list[list[int]]) -> int:
    """Return the smallest number of tokens on which two answers agree in any stream."""
    lengths = [
        next((i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), len(a))
        for a, b in zip(first, second, strict=True)
    ]
    return min(lengths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--batch-invariant", action="store_true")
    options = parser.parse_args()
    if options.processor_time:
        torch.set_num_threads(1)
    config = EngineConfig(
        options.model, options.model.name, weights=options.weights, batch_invariant=options.batch_invariant
    )
    bench = Bench(config, thread_time if options.processor_time else perf_counter)
    tokenizer = Tokenizer.from_path(options.model)
    costs = "  ".join(f"{rows}: {bench.costs.cost(rows) / bench.costs.cost(1):.2f}" for rows in (1, 2, 3, 5, 9, 17, 33))
    print(f"{torch.get_num_threads()} threads; costs by rows, measured in {bench.measured_s:.1f} s: {costs}")
    for streams in map(int, options.streams.split(",")):
        for name in (*PROMPTS, "predicted"):
            prompt = tokenizer.encode(PROMPTS["plain" if name == "predicted" else name])
            prompts = [[*prompt] for _ in range(streams)]
            predicted, without, with_drafts = None, [], []
            for _ in range(options.rounds):
                without.append(bench.answer(prompts, options.tokens, None))
                if name == "predicted":
                    predicted = without[0].tokens[0]
                with_drafts.append(
                    bench.answer(prompts, options.tokens, LookupDrafter(bench.costs, name != "predicted"), predicted)
                )
            before, after = (
                max(without, key=lambda answer: answer.rate),
                max(with_drafts, key=lambda answer: answer.rate),
            )
            common = common_tokens(before.tokens, after.tokens)
            print(
                f"{streams:3} x {name:10} {before.rate:7.1f} -> {after.rate:7.1f} tokens/s "
                f"({after.rate / before.rate:4.2f}), {before.num_steps} -> {after.num_steps} steps, "
                f"{'all' if common == options.tokens else common} of {options.tokens} tokens the same",
                flush=True,
            )


if __name__ == "__main__":
    main()
