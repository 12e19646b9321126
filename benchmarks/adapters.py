"""Time steps whose rows have adapters beside steps without, by turns, without HTTP, scheduler and sampler.

    python benchmarks/adapters.py --model PATH [--rank 16] [--rows 8] [--modules q,k,v,o,gate,up,down] [--prompt 256]

Prints minimum, median and the median of the ratios of turns, of decode steps of `--rows` rows: of the model itself,
with one adapter for all rows, with another adapter for each row, and with one for every other row; then the same of
prompts. The adapters are random.
With `--single` one thread computes and its processor time counts, which other load on the machine affects least.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter, thread_time

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.engine import make_sequences
from engine.config import EngineConfig
from engine.execution.runner import ModelRunner
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.layers.adapters import AdapterWeights, LowRank, make_adapters
from engine.loading.adapter import AdapterTarget
from engine.loading.loader import load_model
from engine.sequence import Chunk, Sequence, StepPlan


def random_adapter(targets: list[AdapterTarget], rank: int, modules: set[str]) -> AdapterWeights:
    """Return an adapter of small random numbers for these kinds of modules, such as "q"."""

    def change(target: AdapterTarget, module: str, num_rows: int) -> LowRank | None:
        if module.rpartition(".")[2].removesuffix("_proj") not in modules:
            return None
        return LowRank(torch.randn(rank, target.num_inputs) * 0.01, torch.randn(num_rows, rank) * 0.01)

    by_place = {
        place: tuple(change(target, source.module, source.num_rows) for source in target.sources)
        for place, target in enumerate(targets)
    }
    found = {place: parts for place, parts in by_place.items() if any(part is not None for part in parts)}
    return AdapterWeights(found, rank, tuple(sorted(modules)))


class Timer:
    """Times steps of a runner, with all threads or a single one."""

    def __init__(self, runner: ModelRunner, is_single: bool) -> None:
        self._runner = runner
        self._clock = thread_time if is_single else perf_counter

    def prompt(self, sequence: Sequence) -> float:
        """Return the seconds of a prompt, as one step that samples."""
        return self._step(Chunk(sequence, 0, len(sequence.prompt_ids), True))

    def decode(self, sequences: list[Sequence]) -> float:
        """Return the seconds for one token of every sequence."""
        for sequence in sequences:
            sequence.output_ids.append(101)
        return self._step(*(Chunk(sequence, sequence.num_tokens - 1, 1, True) for sequence in sequences))

    def _step(self, *chunks: Chunk) -> float:
        started = self._clock()
        self._runner.forward(StepPlan(chunks))
        return self._clock() - started


def report(title: str, kinds: dict[str, list[float]]) -> None:
    first = next(iter(kinds.values()))
    for kind, times in kinds.items():
        rate = statistics.median(base / own for base, own in zip(first, times, strict=True))
        best, middle = min(times) * 1e3, statistics.median(times) * 1e3
        print(f"{title}, {kind:24} min {best:7.2f} ms   median {middle:7.2f} ms   {rate:5.2f} x the rate", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--modules", default="q,k,v,o,gate,up,down")
    parser.add_argument("--context", type=int, default=160)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--single", action="store_true")
    options = parser.parse_args()
    with KERNEL_THREADS.single_threaded() if options.single else nullcontext():
        measure(options)


def measure(options: argparse.Namespace) -> None:
    loaded = load_model(options.model)
    runner = ModelRunner(loaded, EngineConfig(options.model, options.model.name))
    targets = list(loaded.adapter_targets)
    adapters = make_adapters([target.size for target in targets], loaded.device, torch.bfloat16)
    runner.serve_adapters(adapters)
    timer = Timer(runner, options.single)
    for index in range(1, options.rows + 1):
        packed = adapters.pack(random_adapter(targets, options.rank, set(options.modules.split(","))))
        adapters.bind(index, packed)
    print(f"{KERNEL_THREADS.num_threads} threads, adapters of {packed.num_bytes / 2**20:.1f} MiB")
    kinds = {
        "no adapter": [0] * options.rows,
        "one for all rows": [1] * options.rows,
        "another for each row": list(range(1, options.rows + 1)),
        "one for every other row": [number % 2 for number in range(options.rows)],
    }
    made = {}
    for kind, indexes in kinds.items():
        made[kind] = make_sequences(options.rows, options.context, runner.groups, runner.num_blocks)
        for sequence, index in zip(made[kind], indexes, strict=True):
            sequence.adapter_index = index
            timer.prompt(sequence)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.steps):
        for kind, sequences in made.items():
            times[kind].append(timer.decode(sequences))
    report(f"step of {options.rows} rows", {kind: found[3:] for kind, found in times.items()})
    (prompt,) = make_sequences(1, options.prompt, runner.groups, runner.num_blocks)
    prompts: dict[str, list[float]] = {"no adapter": [], "an adapter": []}
    for _ in range(options.steps // 5):
        for index, found in enumerate(prompts.values()):
            prompt.adapter_index = index
            found.append(timer.prompt(prompt))
    report(f"prompt of {options.prompt} tokens", {kind: found[2:] for kind, found in prompts.items()})


if __name__ == "__main__":
    main()
