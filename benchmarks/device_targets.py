"""The target table of a device: decode and prefill of real shapes with random weights, against the device's own rates.

    python benchmarks/engine.py --device cuda --shape llama-3.1-8b [--weights int8] [--kv-cache fp8] [--peer]

Bandwidth and matrix rate are measured in the same run. Decode goes through the whole core (scheduler, runner, sampler,
greedy), prefill through the runner. `--peer` adds the continuous batching of transformers with the same shape. Nothing
is downloaded. Called by engine.py.
"""

from __future__ import annotations

import gc
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from engine.api.request import LogprobOptions, SamplingParams, StopRules
from engine.attention.backend import cache_dtype
from engine.config import EngineConfig
from engine.execution.batch import dummy_sequence
from engine.execution.overlap import OverlappedSteps
from engine.execution.runner import ModelRunner
from engine.loading.loader import LoadedModel
from engine.messages import AddSequence, StepResult
from engine.models.config import ModelConfig
from engine.models.decoder import DecoderBuilder
from engine.models.registry import describe_folder
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix
from engine.sampling.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from engine.sequence import Chunk, Sequence, StepPlan
from tests.engine.in_process import QueueChannel, make_core

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def shape(
    architecture: str,
    vocab: int,
    hidden: int,
    inner: int,
    layers: int,
    heads: int,
    kv_heads: int,
    tied: bool,
    rope: dict,
) -> dict[str, object]:
    """Return the values of a config.json that give the size of a model."""
    return {
        "architectures": [architecture],
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 32768,
        "rope_parameters": rope,
        "tie_word_embeddings": tied,
    }


PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1000000.0}
SHAPES = {
    "llama-3.1-8b": shape("LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, False, LLAMA3_ROPE),
    "qwen2.5-1.5b": shape("Qwen2ForCausalLM", 151936, 1536, 8960, 28, 12, 2, True, PLAIN_ROPE),
    "tiny": shape("LlamaForCausalLM", 512, 64, 128, 2, 4, 2, False, PLAIN_ROPE),
}
POOL = 1 << 20
NUM_GIGABYTES, MATRIX_SIZE = 2, 8192
WEIGHT_BYTES = {"int8": 1, "bf16": 2, "float32": 4}
WARM_STEPS, TIMED_STEPS = 8, 64


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload: rows and prompt tokens of decode steps, and prompts of a prefill."""

    decode_rows: tuple[int, ...]
    prompt_tokens: int
    prefill: tuple[int, int]
    peer_rows: int
    peer_tokens: int


REAL = Workload((1, 8, 64, 256), 512, (8, 2048), 256, 64)
TINY = Workload((1, 4), 20, (2, 48), 2, 4)
TARGETS = {"decode 1": 0.85, "decode 64": 0.60, "prefill": 0.50, "busy": 0.95, "peer": 3.0}
BYTE_TARGETS = TARGETS | {"decode 1": 0.70, "decode 64": 0.50}
"""Shares of the bandwidth for eight-bit weights, which have half the bytes and are dequantised on their way."""


class RandomCheckpoint:
    """Tensors of any shape: a pool of normal numbers, repeated and scaled so that activations stay in range."""

    def __init__(self) -> None:
        self._pool = torch.randn(POOL, generator=torch.Generator().manual_seed(0))

    def has(self, name: str) -> bool:
        return False

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix:
        num_rows, num_inputs = shape
        flat = (self._pool * num_inputs**-0.5).bfloat16().repeat(-(-num_rows * num_inputs // POOL))
        return StoredMatrix.from_float(flat[: num_rows * num_inputs].view(shape))

    def vector(self, name: str, size: int) -> torch.Tensor:
        return torch.zeros(size) if name.endswith("_bias") else torch.ones(size)


def build_model(name: str, device: torch.device, weights: str, max_model_len: int) -> LoadedModel:
    values = SHAPES[name]
    (architecture,) = values["architectures"]
    _, config = describe_folder(name, values | {"architectures": [architecture]})
    scheme = WeightScheme(weights, device, False)
    decoder = DecoderBuilder(config, RandomCheckpoint(), scheme, device).build(lambda fraction: None)
    return LoadedModel(
        decoder,
        config,
        (),
        max_model_len,
        device,
        scheme.activation_dtype,
        scheme.uses_own_kernels,
        scheme.summary(),
    )


class Bench:
    """A model on a device with its core. Times are seconds."""

    def __init__(self, name: str, device: str, weights: str, kv_cache: str, workload: Workload) -> None:
        self.device = torch.device(device)
        self.workload = workload
        max_model_len = max(workload.prefill[1], workload.prompt_tokens + WARM_STEPS + 2 * TIMED_STEPS)
        self.loaded = build_model(name, self.device, weights, max_model_len)
        cache_bytes = 0 if self.device.type == "cuda" else 64 << 20
        max_num_batched_tokens = 0 if self.device.type == "cuda" else 64
        config = EngineConfig(
            Path(name),
            name,
            device=device,
            weights=weights,
            kv_cache=kv_cache,
            max_num_seqs=max(workload.decode_rows),
            kv_cache_bytes=cache_bytes,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self.runner = ModelRunner(self.loaded, config)
        self._channel = QueueChannel()
        scheduler = Scheduler(
            self.runner.num_blocks,
            config.block_size,
            self.runner.max_num_batched_tokens,
            config.max_num_seqs,
            1000,
            False,
            groups=self.runner.groups,
        )
        sampler = Sampler(self.loaded.config.vocab_size, self.device)
        ahead = OverlappedSteps(scheduler, self.runner, sampler) if self.device.type == "cuda" else None
        self.core = make_core(scheduler, self.runner, sampler, self._channel, overlap=ahead)
        self._block_size = config.block_size
        self._num_added = 0

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def bandwidth(self) -> float:
        """Measure the bytes per second that a copy reads and writes."""
        size = (NUM_GIGABYTES << 30) if self.device.type == "cuda" else 1 << 26
        source, target = (torch.zeros(size, dtype=torch.uint8, device=self.device) for _ in range(2))
        return 2 * size / self._best(lambda: target.copy_(source))

    def matrix_rate(self) -> float:
        """Measure the floating-point operations per second of a large bfloat16 product."""
        size = MATRIX_SIZE if self.device.type == "cuda" else 512
        left, right = (torch.randn(size, size, device=self.device).bfloat16() for _ in range(2))
        return 2 * size**3 / self._best(lambda: left @ right)

    def decode(self, num_rows: int) -> list[float]:
        """Time single steps in which `num_rows` sequences get a token each."""
        self._add(num_rows, WARM_STEPS + 2 * TIMED_STEPS)
        while min(self._generated.values()) < WARM_STEPS:
            self._step()
        times = [self._step() for _ in range(TIMED_STEPS if self.device.type == "cuda" else 4)]
        self.busy_share = self._busy_share() if self.device.type == "cuda" else None
        self._drain()
        return times

    def prefill(self) -> float:
        """Time prompts computed together, in steps of the runner's size."""
        count, length = self.workload.prefill
        per_prompt = self.runner.groups.num_spans(length) * self.runner.groups.count
        sequences = [
            dummy_sequence(
                number,
                [(7 * number + i) % 500 for i in range(length)],
                list(range(number * per_prompt, (number + 1) * per_prompt)),
            )
            for number in range(count)
        ]
        plans = list(self._prefill_plans(sequences))

        def compute() -> None:
            for plan in plans:
                self.runner.forward(plan)

        compute()
        return self._best(compute, rounds=3)

    def _prefill_plans(self, sequences: list[Sequence]):
        chunks, room = [], self.runner.max_num_batched_tokens
        for sequence in sequences:
            start = 0
            while start < sequence.num_tokens:
                count = min(room, sequence.num_tokens - start)
                chunks.append(Chunk(sequence, start, count, start + count == sequence.num_tokens))
                start, room = start + count, room - count
                if not room:
                    yield StepPlan(tuple(sorted(chunks, key=lambda chunk: chunk.num_tokens > 1)))
                    chunks, room = [], self.runner.max_num_batched_tokens
        if chunks:
            yield StepPlan(tuple(sorted(chunks, key=lambda chunk: chunk.num_tokens > 1)))

    def _add(self, count: int, max_tokens: int) -> None:
        self._generated: dict[int, int] = {}
        for _ in range(count):
            self._num_added += 1
            self._generated[self._num_added] = 0
            prompt_ids = [(11 * self._num_added + i) % 500 for i in range(self.workload.prompt_tokens)]
            message = AddSequence(
                self._num_added,
                prompt_ids,
                [],
                SamplingParams(temperature=0.0, seed=0),
                StopRules(),
                LogprobOptions(),
                [],
                max_tokens,
                b"",
            )
            self.core.handle_messages([message])

    def _step(self) -> float:
        started = perf_counter()
        self.core.step()
        seconds = perf_counter() - started
        while not self._channel.outbox.empty():
            message = self._channel.outbox.get()
            assert isinstance(message, StepResult)
            for output in message.outputs:
                assert output.finish in (None, "length"), output
                self._generated[output.seq_id] += len(output.token_ids)
                if output.finish:
                    self._generated[output.seq_id] = 1 << 30
        return seconds

    def _drain(self) -> None:
        while min(self._generated.values()) < 1 << 30:
            self._step()

    def _busy_share(self) -> float:
        """Return the share of a few steps during which a kernel ran."""
        self.wait()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            started = perf_counter()
            for _ in range(TIMED_STEPS // 4):
                self._step()
            self.wait()
            seconds = perf_counter() - started
        return (
            busy_seconds(
                [
                    (event.time_range.start, event.time_range.end)
                    for event in profile.events()
                    if event.device_type.name == "CUDA"
                ]
            )
            / seconds
        )

    def _best(self, compute, rounds: int = 10) -> float:
        times = []
        for _ in range(rounds):
            self.wait()
            started = perf_counter()
            compute()
            self.wait()
            times.append(perf_counter() - started)
        return min(times)


def busy_seconds(spans: list[tuple[float, float]]) -> float:
    """Return the length of the union of spans in microseconds."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total * 1e-6


def layer_weights(config: ModelConfig) -> int:
    """Return the number of weights in the products of all layers."""
    shape = config.attention_shape
    attention = config.hidden_size * 2 * (shape.num_heads + shape.num_kv_heads) * shape.head_size
    return config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)


def decode_bytes(config: ModelConfig, num_rows: int, context: int, weight_bytes: int, cache_bytes: int) -> int:
    """Return the bytes that a decode step reads: every weight once, and the keys and values of every context.

    `weight_bytes` and `cache_bytes` are those of one number.
    """
    weights = layer_weights(config) + config.hidden_size * config.vocab_size
    shape = config.attention_shape
    cached = 2 * config.num_layers * shape.num_kv_heads * shape.head_size * context * num_rows
    return weights * weight_bytes + cached * cache_bytes


def prefill_operations(config: ModelConfig, count: int, length: int) -> float:
    """Return floating-point operations of prompts: two per weight and token, and causal attention."""
    shape = config.attention_shape
    attention = 2 * config.num_layers * shape.num_heads * shape.head_size * length * length
    return count * (2.0 * layer_weights(config) * length + attention + 2.0 * config.hidden_size * config.vocab_size)


def peer_rate(name: str, device: torch.device, workload: Workload) -> float:
    """Measure tokens per second of transformers' continuous batching on the same shape, prompts included."""
    import transformers

    values = dict(SHAPES[name])
    (architecture,) = values.pop("architectures")
    config = getattr(transformers, architecture.replace("ForCausalLM", "Config"))(**values)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    settings = transformers.GenerationConfig(
        max_new_tokens=workload.peer_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    # On a device the cache sizes itself; on a CPU it would take nearly all memory.
    sizes = {} if device.type == "cuda" else {"num_blocks": 16, "max_batch_tokens": 64}
    batching = transformers.generation.configuration_utils.ContinuousBatchingConfig(**sizes)
    prompts = [[(11 * row + i) % 500 for i in range(workload.prompt_tokens)] for row in range(workload.peer_rows)]
    model.generate_batch(prompts[:2], generation_config=settings, continuous_batching_config=batching)
    started = perf_counter()
    model.generate_batch(prompts, generation_config=settings, continuous_batching_config=batching)
    return workload.peer_rows * workload.peer_tokens / (perf_counter() - started)


def own_rate(bench: Bench, workload: Workload) -> float:
    """Measure the same through our core."""
    bench._add(workload.peer_rows, workload.peer_tokens)
    started = perf_counter()
    bench._drain()
    return workload.peer_rows * workload.peer_tokens / (perf_counter() - started)


def print_row(what: str, measured: str, share: str, found: float = 0.0, wanted: float | None = None) -> None:
    """Print one line of the table; `wanted` is the target, if there is one."""
    verdict = "" if wanted is None else f"{wanted:.2f} {'met' if found >= wanted else 'MISSED'}"
    print(f"| {what:34} | {measured:>22} | {share:>28} | {verdict:>11} |", flush=True)


def run(name: str, device: str, weights: str = "bf16", kv_cache: str = "auto", with_peer: bool = False) -> None:
    """Measure and print."""
    workload = TINY if name == "tiny" else REAL
    bench = Bench(name, device, weights, kv_cache, workload)
    config = bench.loaded.config
    is_cuda = bench.device.type == "cuda"
    print(
        f"{name} on {torch.cuda.get_device_name() if is_cuda else 'cpu'}, torch {torch.__version__}, "
        f"{sys.version.split()[0]}"
    )
    print(f"weights {weights}, cache {kv_cache}")
    print(
        f"{bench.runner.num_blocks} blocks of {bench._block_size}, {bench.runner.max_num_batched_tokens} tokens a step"
    )
    bandwidth, matrix_rate = bench.bandwidth(), bench.matrix_rate()
    print(f"measured: {bandwidth / 1e9:.0f} GB/s, {matrix_rate / 1e12:.2f} TFLOP/s (bfloat16)\n")
    print("| workload | measured | of what the device can do | target |\n| --- | --- | --- | --- |")
    weight_bytes, targets = WEIGHT_BYTES[weights], BYTE_TARGETS if weights == "int8" else TARGETS
    cache_bytes = cache_dtype(weights, kv_cache, bench.device).itemsize
    for num_rows in workload.decode_rows:
        seconds = statistics.median(bench.decode(num_rows))
        context = workload.prompt_tokens + WARM_STEPS + TIMED_STEPS // 2
        share = decode_bytes(config, num_rows, context, weight_bytes, cache_bytes) / bandwidth / seconds
        measured = f"{seconds * 1e3:.2f} ms, {num_rows / seconds:.0f}/s"
        print_row(
            f"decode, {num_rows} rows of {context} tokens",
            measured,
            f"{share:.1%} of the bandwidth",
            share,
            targets.get(f"decode {num_rows}"),
        )
        if bench.busy_share is not None:
            print_row(f"device busy, {num_rows} rows", "", f"{bench.busy_share:.1%}", bench.busy_share, targets["busy"])
    count, length = workload.prefill
    seconds = bench.prefill()
    share = prefill_operations(config, count, length) / matrix_rate / seconds
    measured = f"{seconds * 1e3:.1f} ms, {count * length / seconds:.0f}/s"
    print_row(
        f"prefill, {count} x {length} tokens", measured, f"{share:.1%} of the matrix rate", share, targets["prefill"]
    )
    if with_peer:
        ours, used = own_rate(bench, workload), bench.device
        del bench  # its cache takes nearly all memory
        gc.collect()
        if is_cuda:
            torch.cuda.empty_cache()
        ratio = ours / (theirs := peer_rate(name, used, workload))
        label = f"{workload.peer_rows} x {workload.prompt_tokens} + {workload.peer_tokens} tokens"
        print_row(label, f"{ours:.0f}/s beside {theirs:.0f}/s", f"{ratio:.2f} x transformers", ratio, targets["peer"])
