"""Time steps of the model runner without HTTP, scheduler and sampler.

    python benchmarks/engine.py --model PATH [--streams 1,8,32] [--context 160] [--prefill 170] [--chunk 0]
        [--threads 0] [--parts]
    python benchmarks/engine.py --device cuda --shape llama-3.1-8b [--peer]     the target table (device_targets.py)

Prints minimum and median of decode steps and of a prompt. `--parts` adds a table of what the operators of one decode
step cost (torch.profiler). Compare only within one run on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import perf_counter

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import device_targets
from engine.attention.cache_groups import CacheGroups
from engine.config import EngineConfig
from engine.execution.batch import dummy_sequence
from engine.execution.runner import ModelRunner
from engine.loading.loader import load_model
from engine.sequence import Chunk, Sequence, StepPlan


def make_sequences(count: int, length: int, groups: CacheGroups, num_blocks: int) -> list[Sequence]:
    """Return sequences with blocks scattered over the cache, as in service, and room for 200 more tokens."""
    per_sequence = groups.num_spans(length + 200) * groups.count
    order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0)).tolist()
    if count * per_sequence > num_blocks:
        raise SystemExit(
            f"{count} streams of {length} tokens need {count * per_sequence} blocks, the cache has {num_blocks}"
        )
    return [
        dummy_sequence(
            number,
            [100 + (7 * number + i) % 1000 for i in range(length)],
            order[number * per_sequence : (number + 1) * per_sequence],
            max_tokens=1000,
        )
        for number in range(count)
    ]


def decode_step(runner: ModelRunner, sequences: list[Sequence]) -> float:
    """Return the seconds for one token of every sequence."""
    for sequence in sequences:
        sequence.output_ids.append(101)
    plan = StepPlan(tuple(Chunk(sequence, sequence.num_tokens - 1, 1, True) for sequence in sequences))
    started = perf_counter()
    runner.forward(plan)
    return perf_counter() - started


def prefill(runner: ModelRunner, sequences: list[Sequence], chunk: int) -> list[float]:
    """Return the seconds of each sequence's prompt, in chunks of at most `chunk` tokens."""
    times = []
    for sequence in sequences:
        started = perf_counter()
        for start in range(0, sequence.num_tokens, chunk):
            count = min(chunk, sequence.num_tokens - start)
            runner.forward(StepPlan((Chunk(sequence, start, count, start + count == sequence.num_tokens),)))
        times.append(perf_counter() - started)
    return times


def report(title: str, times: list[float], num_tokens: int) -> None:
    best, middle = min(times), statistics.median(times)
    print(
        f"{title:34} min {best * 1e3:8.2f} ms   median {middle * 1e3:8.2f} ms   {num_tokens / middle:8.0f} tokens/s",
        flush=True,
    )


def print_parts(runner: ModelRunner, sequences: list[Sequence]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            decode_step(runner, sequences)
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=48))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument(
        "--shape", choices=sorted(device_targets.SHAPES), help="random weights of this shape instead of a model"
    )
    parser.add_argument("--peer", action="store_true", help="with --shape: transformers' continuous batching beside it")
    parser.add_argument("--streams", default="1,8,32")
    parser.add_argument("--context", type=int, default=160)
    parser.add_argument("--prefill", type=int, default=170)
    parser.add_argument("--chunk", type=int, default=0, help="prompt tokens of a step; 0: as beside running streams")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--kv-cache", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-invariant", action="store_true")
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    if (options.model is None) == (options.shape is None):
        parser.error("name either --model or --shape")
    if options.shape is not None:
        weights = "bf16" if options.weights == "auto" else options.weights
        device_targets.run(options.shape, options.device, weights, options.kv_cache, options.peer)
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    config = EngineConfig(
        options.model,
        options.model.name,
        device=options.device,
        weights=options.weights,
        kv_cache=options.kv_cache,
        batch_invariant=options.batch_invariant,
    )
    started = perf_counter()
    loaded = load_model(
        options.model, device=options.device, weights=options.weights, batch_invariant=options.batch_invariant
    )
    loaded_at = perf_counter()
    runner = ModelRunner(loaded, config)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    print(
        f"loaded in {loaded_at - started:.1f} s, runner in {perf_counter() - loaded_at:.1f} s: "
        f"{runner.num_blocks} blocks, {runner.max_num_batched_tokens} tokens a step, context {runner.max_model_len}"
    )
    prompts = make_sequences(5, options.prefill, runner.groups, runner.num_blocks)
    chunk = options.chunk or runner.max_num_batched_tokens
    report(f"prompt of {options.prefill} tokens", prefill(runner, prompts, chunk), options.prefill)
    for streams in map(int, options.streams.split(",")):
        sequences = make_sequences(streams, options.context, runner.groups, runner.num_blocks)
        prefill(runner, sequences, runner.max_num_batched_tokens)
        times = [decode_step(runner, sequences) for _ in range(options.steps)]
        report(f"step of {streams} x {options.context}+ tokens", times, streams)
        if options.parts:
            print_parts(runner, sequences)


if __name__ == "__main__":
    main()
